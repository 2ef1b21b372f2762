//! [`Keys`] and [`ManageKeys`] on PostgreSQL.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::audit::record;
use super::fault::Fault;
use super::flush::{DbRole, Transaction};
use super::param::{clean_or_null, ms, ms_or_null, p};
use super::records::{List, ListColumns};
use super::row::{self, all, first};
use crate::audit::{created, revoked, rotated};
use crate::{Author, KeyDigest, KeyRow, KeyUse, Keys, ManageKeys, NewKey, Page, Recorder, StoreError, StoreFuture};

/// The id is new: a conflict is this very statement, committed by an attempt whose answer was lost.
const INSERT: &str =
    "INSERT INTO api_keys (id, tenant_id, digest, user_id, scopes, name, expires_at, created_at, allow_ips, safety_mode, collection,
      root_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    ON CONFLICT (tenant_id, id) DO NOTHING RETURNING true";
/// Without effect on a key that another one replaced already.
const SHORTEN: &str = "UPDATE api_keys SET expires_at = least(expires_at, $3), replaced_by = $4 WHERE tenant_id = $1 AND id = $2
    AND (replaced_by IS NULL OR replaced_by = $4) RETURNING true";

/// A key to insert, and what its entry in the audit log needs.
pub(super) struct KeyWrite {
    pub(super) key: NewKey,
    /// The key that it replaces, and when that one expires.
    pub(super) old: Option<(Uuid, Timestamp)>,
    pub(super) by: Author,
    pub(super) recorder: Recorder,
}

impl KeyWrite {
    /// False when the key that it replaces does not exist or was replaced already.
    async fn run(&self, transaction: &Transaction) -> Result<bool, Fault> {
        let Self { key, old, by, recorder } = self;
        let made = key.clone().into_row();
        let act = match old {
            None => created(&made),
            Some((id, ends)) => {
                let Some(before) = key_by_id(transaction, key.tenant_id, *id).await? else { return Ok(false) };
                let shortened = transaction.query(SHORTEN, &[p(&key.tenant_id), p(id), p(&ms(*ends)), p(&key.id)]).await?;
                if shortened.is_empty() {
                    return Ok(false);
                }
                rotated(&before, &made, *ends)
            }
        };
        // No row: an earlier attempt was committed, with its entry.
        if insert(transaction, key).await? {
            record(transaction, recorder, key.tenant_id, by, &[act], key.created_at).await?;
        }
        Ok(true)
    }
}

async fn insert(transaction: &Transaction, key: &NewKey) -> Result<bool, Fault> {
    let (scopes, ips) = (key.scopes.names().join(","), key.stored_ips());
    let (scopes, digest, ips) = (scopes.as_str(), key.digest.0.as_str(), ips.as_deref());
    let (user_id, name) = (clean_or_null(key.user_id.as_deref()), clean_or_null(key.name.as_deref()));
    let (safety_mode, collection) = (clean_or_null(key.safety_mode.as_deref()), clean_or_null(key.collection.as_deref()));
    let (expires_at, created_at) = (ms_or_null(key.expires_at), ms(key.created_at));
    let values = [
        p(&key.id),
        p(&key.tenant_id),
        p(&digest),
        p(&user_id),
        p(&scopes),
        p(&name),
        p(&expires_at),
        p(&created_at),
        p(&ips),
        p(&safety_mode),
        p(&collection),
        p(&key.root_id),
    ];
    Ok(!transaction.query(INSERT, &values).await?.is_empty())
}

/// The key, locked until the end of the transaction.
pub(super) async fn key_by_id(transaction: &Transaction, tenant_id: Uuid, id: Uuid) -> Result<Option<KeyRow>, Fault> {
    let sql = format!("SELECT {} FROM api_keys WHERE tenant_id = $1 AND id = $2 FOR UPDATE", row::KEY);
    Ok(first(&transaction.query(&sql, &[p(&tenant_id), p(&id)]).await?, row::key)?)
}

impl PostgresStore {
    pub(super) async fn insert_key(&self, write: KeyWrite) -> Result<bool, StoreError> {
        let write = Arc::new(write);
        self.with(DbRole::Tenant(write.key.tenant_id), move |transaction| {
            let write = Arc::clone(&write);
            Box::pin(async move { write.run(transaction).await })
        })
        .await
    }
}

impl Keys for PostgresStore {
    fn key_by_digest(&self, digest: KeyDigest) -> StoreFuture<'_, Option<KeyRow>> {
        Box::pin(async move {
            let (sql, digest) = (format!("SELECT {} FROM api_keys WHERE digest = $1", row::KEY), digest.0.as_str());
            first(&self.query(DbRole::System, &sql, &[p(&digest)]).await?, row::key)
        })
    }

    fn keys_by_id(&self, ids: Vec<Uuid>) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(async move {
            let sql = format!("SELECT {} FROM api_keys WHERE id = ANY ($1)", row::KEY);
            all(&self.query(DbRole::System, &sql, &[p(&ids)]).await?, row::key)
        })
    }

    fn record_key_uses(&self, uses: Vec<KeyUse>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let tenants: Vec<Uuid> = uses.iter().map(|used| used.tenant_id).collect();
            let ids: Vec<Uuid> = uses.iter().map(|used| used.id).collect();
            let times: Vec<Timestamp> = uses.iter().map(|used| ms(used.at)).collect();
            // Rows that another process is changing are skipped: the next use of the key is recorded again.
            let sql = "UPDATE api_keys SET last_used_at = greatest(last_used_at, used.at) FROM (
                         SELECT key.tenant_id, key.id, named.at FROM unnest($1, $2, $3) AS named (tenant_id, id, at)
                         JOIN api_keys AS key ON key.tenant_id = named.tenant_id AND key.id = named.id FOR UPDATE OF key SKIP LOCKED
                       ) AS used WHERE api_keys.tenant_id = used.tenant_id AND api_keys.id = used.id";
            self.query(DbRole::System, sql, &[p(&tenants), p(&ids), (&times as _, Type::TIMESTAMPTZ_ARRAY)]).await.map(|_| ())
        })
    }
}

impl ManageKeys for PostgresStore {
    fn create_key(&self, key: NewKey, by: Author) -> StoreFuture<'_, KeyRow> {
        Box::pin(async move {
            self.insert_key(KeyWrite { key: key.clone(), old: None, by, recorder: self.recorder.clone() }).await?;
            Ok(key.into_row())
        })
    }

    fn keys(&self, tenant_id: Uuid, page: Page) -> StoreFuture<'_, Vec<KeyRow>> {
        let columns = ListColumns { columns: row::KEY, bytes: "coalesce(octet_length(name), 0)" };
        Box::pin(List::new(row::KEY, "api_keys", tenant_id).page(self, page, columns, row::key))
    }

    fn rotate_key(&self, old: Uuid, old_ends: Timestamp, new: NewKey, by: Author) -> StoreFuture<'_, Option<KeyRow>> {
        let write = KeyWrite { key: new.clone(), old: Some((old, old_ends)), by, recorder: self.recorder.clone() };
        Box::pin(async move { Ok(self.insert_key(write).await?.then(|| new.into_row())) })
    }

    fn delete_key(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool> {
        let (entry, at) = (Arc::new((self.recorder.clone(), by)), self.clock.now());
        Box::pin(self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move {
                let Some(key) = key_by_id(transaction, tenant_id, id).await? else { return Ok(false) };
                transaction.query("DELETE FROM api_keys WHERE tenant_id = $1 AND id = $2", &[p(&tenant_id), p(&id)]).await?;
                record(transaction, &entry.0, tenant_id, &entry.1, &[revoked(&key)], at).await?;
                Ok(true)
            })
        }))
    }
}
