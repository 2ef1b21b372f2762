//! The audit log: who did which administrative act, one chain of entries per tenant and one for the server.
//!
//! Invariants: an entry is written in the transaction of its act where the act is a write of the store; the hash of an entry covers the
//! entry before it, so that a change, a gap or another order is found; the head of a chain is a row of its own, locked last in its
//! transaction. The hash covers salted digests of the values before and after the act, so an erasure can blank the values; the entry
//! about the erasure names those that it blanked. A chain whose head is not signed as it should be never gets a valid signature again by
//! itself.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use werkruf_contract::{Clock, Uuid, hex};

use crate::{INSTALLATION, KeyRow, SecretKeys, StoreFuture};

/// The chain of acts that concern the whole server.
pub const SERVER_CHAIN: Uuid = INSTALLATION;

/// The action of an erasure. Its entry names the entries whose values it blanked.
pub(crate) const ERASE: &str = "person.erase";

/// Who acted: a person, a key, the operator; none of them is the server itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Actor {
    pub user_id: Option<String>,
    pub key_id: Option<Uuid>,
    pub operator: bool,
}

/// Who acted, and from where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    pub actor: Actor,
    /// `None` inside the process.
    pub address: Option<String>,
}

impl Author {
    /// The server itself, for example at its first start.
    pub const fn server() -> Self {
        Self { actor: Actor { user_id: None, key_id: None, operator: false }, address: None }
    }

    /// The operator, with a command on the machine of the database.
    pub const fn operator() -> Self {
        Self { actor: Actor { user_id: None, key_id: None, operator: true }, address: None }
    }
}

/// An administrative act. Neither value may hold a secret or the digest of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    pub action: &'static str,
    pub subject: String,
    /// The id of the user whose data the values hold: the user's erasure blanks them.
    pub person: Option<String>,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

impl Act {
    /// An act without values.
    pub fn new(action: &'static str, subject: impl Into<String>) -> Self {
        Self { action, subject: subject.into(), person: None, before: None, after: None }
    }

    #[must_use]
    pub fn before(self, value: Value) -> Self {
        Self { before: Some(value), ..self }
    }

    #[must_use]
    pub fn after(self, value: Value) -> Self {
        Self { after: Some(value), ..self }
    }

    /// The values hold data of this user.
    #[must_use]
    pub fn about(self, user_id: impl Into<String>) -> Self {
        Self { person: Some(user_id.into()), ..self }
    }
}

/// The acts on keys.
pub(crate) fn created(key: &KeyRow) -> Act {
    on_key("key.create", key).after(key_value(key))
}

pub(crate) fn rotated(old: &KeyRow, new: &KeyRow, old_ends: Timestamp) -> Act {
    let mut after = key_value(new);
    after["id"] = json!(new.id);
    after["replaced_until"] = json!(old_ends.to_string());
    on_key("key.rotate", old).before(key_value(old)).after(after)
}

pub(crate) fn revoked(key: &KeyRow) -> Act {
    on_key("key.revoke", key).before(key_value(key))
}

fn on_key(action: &'static str, key: &KeyRow) -> Act {
    Act { person: key.user_id.clone(), ..Act::new(action, key.id.to_string()) }
}

/// What the log says about a key.
fn key_value(key: &KeyRow) -> Value {
    json!({
        "user_id": key.user_id,
        "scopes": key.scopes.names(),
        "name": key.name,
        "expires_at": key.expires_at.map(|time| time.to_string()),
        "allow_ips": key.allow_ips,
        "safety_mode": key.safety_mode,
        "collection": key.collection,
    })
}

/// A row of `audit_entries`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub tenant_id: Uuid,
    /// From 1, without holes.
    pub seq: i64,
    pub at: Timestamp,
    pub actor: Actor,
    pub address: Option<String>,
    pub action: String,
    pub subject: String,
    pub person: Option<String>,
    pub salt: Option<String>,
    /// JSON; `None` where there is no value or it was blanked.
    pub before: Option<String>,
    pub after: Option<String>,
    pub before_digest: Option<String>,
    pub after_digest: Option<String>,
    pub hash: String,
}

impl AuditRow {
    /// The hash of this entry after the entry with the hash `previous`.
    pub(crate) fn hash_after(&self, previous: &str) -> String {
        let Actor { user_id, key_id, operator } = &self.actor;
        let covered = json!([
            self.tenant_id,
            previous,
            self.seq,
            self.at.as_millisecond(),
            [json!(user_id), json!(key_id), json!(operator)],
            self.address,
            self.action,
            self.subject,
            self.person,
            self.before_digest,
            self.after_digest,
        ]);
        hex(&Sha256::digest(covered.to_string().as_bytes()))
    }

    pub(crate) fn digest(&self, value: Option<&String>) -> Option<String> {
        let salt = self.salt.as_deref().unwrap_or_default();
        value.map(|value| hex(&Sha256::new().chain_update(salt).chain_update([0]).chain_update(value).finalize()))
    }

    /// Whether the values were blanked.
    pub(crate) fn is_blank(&self) -> bool {
        let had_values = self.before_digest.is_some() || self.after_digest.is_some();
        had_values && self.salt.is_none() && self.before.is_none() && self.after.is_none()
    }

    /// The entries that this erasure blanked.
    pub(crate) fn blanked(&self) -> Vec<i64> {
        let value = self.after.as_deref().filter(|_| self.action == ERASE).and_then(|text| serde_json::from_str::<Value>(text).ok());
        let list = value.as_ref().and_then(|value| value["blanked"].as_array());
        list.into_iter().flatten().filter_map(Value::as_i64).collect()
    }
}

/// A row of `audit_heads`: the end of a chain, kept apart from its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHead {
    pub tenant_id: Uuid,
    pub seq: i64,
    pub hash: String,
    pub count: i64,
    /// The id of the key that signed the head.
    pub key_name: Option<String>,
    pub signature: Option<String>,
}

impl AuditHead {
    /// The head of a chain without entries.
    pub(crate) const fn empty(tenant_id: Uuid) -> Self {
        Self { tenant_id, seq: 0, hash: String::new(), count: 0, key_name: None, signature: None }
    }

    fn signed_text(&self) -> String {
        json!([self.tenant_id, self.seq, self.count, self.hash]).to_string()
    }

    /// Signs with the newest key.
    pub(crate) fn sign(&mut self, keys: &SecretKeys) {
        let key = keys.newest();
        self.signature = key.as_ref().and_then(|key| key.sign(self.signed_text().as_bytes()));
        self.key_name = key.filter(|_| self.signature.is_some()).map(|key| key.name());
    }

    /// Whether this head may be signed with the newest key: its signature is valid or, if the operator says so, it has none.
    pub(crate) fn may_be_signed(&self, keys: &SecretKeys, unsigned_too: bool) -> bool {
        self.signature_fault(keys).is_none() || (unsigned_too && self.signature.is_none())
    }

    pub(crate) fn signature_fault(&self, keys: &SecretKeys) -> Option<&'static str> {
        match (&self.key_name, &self.signature) {
            (Some(name), Some(signature)) => match keys.named(name) {
                Some(key) if key.sign(self.signed_text().as_bytes()).as_ref() == Some(signature) => None,
                Some(_) => Some("its head was rewritten: the signature does not fit"),
                None => Some("its head is signed with a key that is not configured"),
            },
            _ if self.count > 0 && keys.newest().is_some() => Some(
                "its head is not signed, although a key is configured; if it is the first key, `werkruf secrets rotate --sign-unsigned` signs it",
            ),
            _ => None,
        }
    }

    /// The entry of an act, and moves the head to it.
    pub(crate) fn append(&mut self, author: &Author, act: &Act, at: Timestamp, salt: Uuid, keys: &SecretKeys) -> AuditRow {
        // A head that was tampered with must not become valid by the next act.
        let intact = self.signature_fault(keys).is_none();
        let (before, after) = (act.before.as_ref().map(Value::to_string), act.after.as_ref().map(Value::to_string));
        let mut row = AuditRow {
            tenant_id: self.tenant_id,
            seq: self.seq + 1,
            at: Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at),
            actor: Actor { user_id: author.actor.user_id.as_deref().map(storable), ..author.actor.clone() },
            address: author.address.as_deref().map(storable),
            action: act.action.to_owned(),
            subject: storable(&act.subject),
            person: act.person.as_deref().map(storable),
            salt: (before.is_some() || after.is_some()).then(|| salt.to_string()),
            before,
            after,
            before_digest: None,
            after_digest: None,
            hash: String::new(),
        };
        row.before_digest = row.digest(row.before.as_ref());
        row.after_digest = row.digest(row.after.as_ref());
        row.hash = row.hash_after(&self.hash);
        self.seq = row.seq;
        self.count += 1;
        self.hash = row.hash.clone();
        if intact {
            self.sign(keys);
        }
        row
    }
}

/// What writing an entry needs.
#[derive(Debug, Clone)]
pub struct Recorder {
    pub(crate) keys: SecretKeys,
    clock: Clock,
}

impl Recorder {
    pub(crate) fn new(keys: SecretKeys, clock: &Clock) -> Self {
        Self { keys, clock: clock.clone() }
    }

    /// The entries of acts, and moves the head to the last one.
    pub(crate) fn append(&self, head: &mut AuditHead, author: &Author, acts: &[Act], at: Timestamp) -> Vec<AuditRow> {
        acts.iter().map(|act| head.append(author, act, at, self.clock.new_id(), &self.keys)).collect()
    }
}

/// Text that every database can store.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The audit log.
pub trait Audit: Send + Sync {
    /// The keys that sign the heads. Whoever replaces them, replaces them for the store too.
    fn secret_keys(&self) -> SecretKeys;
    /// Writes the entry of an act that is no write of the store.
    fn record(&self, tenant_id: Uuid, author: Author, act: Act, at: Timestamp) -> StoreFuture<'_, ()>;
}

/// Reads the log, and signs its chains again.
pub trait AuditLog: Audit {
    /// The entries of a chain after `after`, oldest first.
    fn audit_entries(&self, tenant_id: Uuid, after: i64, limit: u32) -> StoreFuture<'_, Vec<AuditRow>>;
    /// The head of a chain; `None` for a chain without entries.
    fn audit_head(&self, tenant_id: Uuid) -> StoreFuture<'_, Option<AuditHead>>;
    /// All chains with a head or an entry.
    fn audit_chains(&self) -> StoreFuture<'_, Vec<Uuid>>;
    /// Signs every head with the newest key, except heads whose signature does not fit. Heads without a signature are signed only if
    /// `unsigned_too`: somebody may have removed it. Returns how many were signed.
    fn sign_heads(&self, unsigned_too: bool) -> StoreFuture<'_, u64>;
}
