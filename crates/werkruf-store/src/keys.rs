//! API keys: 256 random bits, shown once, stored as a digest.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use werkruf_contract::{Uuid, hex};

use crate::{Author, Page, StoreFuture};

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Scopes {
    pub admin: bool,
    pub chat: bool,
    pub tools: bool,
    pub read: bool,
    pub act_as: bool,
    pub approve: bool,
}

impl Scopes {
    pub const ALL: Self = Self { admin: true, chat: true, tools: true, read: true, act_as: true, approve: true };
    /// The names of all scopes, in a fixed order.
    pub const NAMES: [&'static str; 6] = ["admin", "chat", "tools", "read", "act_as", "approve"];

    /// Reads the names; the error is the first unknown name.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut scopes = Self::default();
        for name in names {
            match name.trim() {
                "admin" => scopes.admin = true,
                "chat" => scopes.chat = true,
                "tools" => scopes.tools = true,
                "read" => scopes.read = true,
                "act_as" => scopes.act_as = true,
                "approve" => scopes.approve = true,
                other => return Err(other.to_owned()),
            }
        }
        Ok(scopes)
    }

    /// The names, in a fixed order.
    pub fn names(self) -> Vec<&'static str> {
        let granted = [self.admin, self.chat, self.tools, self.read, self.act_as, self.approve];
        granted.into_iter().zip(Self::NAMES).filter_map(|(granted, name)| granted.then_some(name)).collect()
    }
}

/// The stored form of a key: enough to recognize the key, not enough to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDigest(pub String);

impl KeyDigest {
    /// The digest of a key as a client sends it.
    pub fn of(secret: &str) -> Self {
        Self(hex(&Sha256::digest(secret.as_bytes())))
    }
}

/// A key to store.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub digest: KeyDigest,
    pub user_id: Option<String>,
    pub scopes: Scopes,
    pub name: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub allow_ips: Vec<String>,
    pub safety_mode: Option<String>,
    pub collection: Option<String>,
    /// The first key of a series of rotations; `None` for that key itself.
    pub root_id: Option<Uuid>,
}

impl NewKey {
    /// The column `allow_ips`.
    pub(crate) fn stored_ips(&self) -> Option<String> {
        (!self.allow_ips.is_empty()).then(|| self.allow_ips.join(","))
    }

    /// The row after it is stored.
    pub(crate) fn into_row(self) -> KeyRow {
        KeyRow {
            id: self.id,
            tenant_id: self.tenant_id,
            user_id: self.user_id,
            scopes: self.scopes,
            name: self.name,
            expires_at: self.expires_at,
            created_at: self.created_at,
            last_used_at: None,
            allow_ips: self.allow_ips,
            safety_mode: self.safety_mode,
            collection: self.collection,
            replaced_by: None,
            root_id: self.root_id,
        }
    }
}

/// A row of `api_keys`, without its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub user_id: Option<String>,
    pub scopes: Scopes,
    pub name: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// The last use, up to a minute late.
    pub last_used_at: Option<Timestamp>,
    /// The networks from which the key may be used; empty: from every address.
    pub allow_ips: Vec<String>,
    /// The safety profile of every request with this key.
    pub safety_mode: Option<String>,
    /// The collection of every request with this key.
    pub collection: Option<String>,
    /// The key that replaced this one.
    pub replaced_by: Option<Uuid>,
    /// The first key of a series of rotations; `None` for that key itself.
    pub root_id: Option<Uuid>,
}

impl KeyRow {
    /// Names the holder of the key: a rotation does not change it.
    pub fn root(&self) -> Uuid {
        self.root_id.unwrap_or(self.id)
    }
}

/// When a key was last used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    pub tenant_id: Uuid,
    pub id: Uuid,
    pub at: Timestamp,
}

/// Finds keys, and records their use.
pub trait Keys: Send + Sync {
    /// The key with this digest.
    fn key_by_digest(&self, digest: KeyDigest) -> StoreFuture<'_, Option<KeyRow>>;
    /// The keys with these ids that still exist, of all tenants.
    fn keys_by_id(&self, ids: Vec<Uuid>) -> StoreFuture<'_, Vec<KeyRow>>;
    /// Stores when keys were last used. Keys that no longer exist are skipped.
    fn record_key_uses(&self, uses: Vec<KeyUse>) -> StoreFuture<'_, ()>;
}

/// Makes, lists, replaces and deletes keys.
pub trait ManageKeys: Send + Sync {
    fn create_key(&self, key: NewKey, by: Author) -> StoreFuture<'_, KeyRow>;
    fn keys(&self, tenant_id: Uuid, page: Page) -> StoreFuture<'_, Vec<KeyRow>>;
    /// Stores a key that replaces an older one, which then expires at `old_ends`, in one transaction. `None` when there is no such
    /// older key in the tenant of the new one, or when it was replaced already.
    fn rotate_key(&self, old: Uuid, old_ends: Timestamp, new: NewKey, by: Author) -> StoreFuture<'_, Option<KeyRow>>;
    fn delete_key(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool>;
}
