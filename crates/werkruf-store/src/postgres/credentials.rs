//! [`Credentials`] on PostgreSQL.

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::{DbRole, Statement};
use super::param::{clean_or_null, ms, ms_or_null, p};
use super::row::{self, all};
use super::text::clean;
use crate::{Credentials, KeyRow, KeyUse, NewKey, StoreError, StoreFuture};

/// The id is new: a conflict is this very statement, committed by an attempt whose answer was lost.
const INSERT: &str =
    "INSERT INTO api_keys (id, tenant_id, digest, user_id, scopes, name, expires_at, created_at, allow_ips, safety_mode, collection,
      root_id)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $13
    WHERE $12 IS NULL OR EXISTS (SELECT 1 FROM api_keys WHERE tenant_id = $2 AND id = $12)
    ON CONFLICT (tenant_id, id) DO NOTHING";
const SHORTEN: &str = "UPDATE api_keys SET expires_at = least(expires_at, $3) WHERE tenant_id = $1 AND id = $2 RETURNING true";

impl PostgresStore {
    /// Stores a key. `old` is the key that it replaces, and when that one expires; false when there is no such key.
    pub(super) async fn insert_key(&self, old: Option<(Uuid, Timestamp)>, key: &NewKey) -> Result<bool, StoreError> {
        let (scopes, ips) = (key.scopes.names().join(","), key.stored_ips());
        let (scopes, digest, ips) = (scopes.as_str(), key.digest.0.as_str(), ips.as_deref());
        let (user_id, name) = (clean_or_null(key.user_id.as_deref()), clean_or_null(key.name.as_deref()));
        let (safety_mode, collection) = (clean_or_null(key.safety_mode.as_deref()), clean_or_null(key.collection.as_deref()));
        let (expires_at, created_at, old_id) = (ms_or_null(key.expires_at), ms(key.created_at), old.map(|(id, _)| id));
        let insert = [
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
            p(&old_id),
            p(&key.root_id),
        ];
        let insert = Statement { sql: INSERT, params: &insert };
        let scope = DbRole::Tenant(key.tenant_id);
        let Some((old_id, ends)) = old else { return self.run(scope, &[insert]).await.map(|_| true) };
        let ends = ms(ends);
        let shorten = [p(&key.tenant_id), p(&old_id), p(&ends)];
        let rows = self.run(scope, &[Statement { sql: SHORTEN, params: &shorten }, insert]).await?;
        Ok(rows.first().is_some_and(|shortened| !shortened.is_empty()))
    }
}

impl Credentials for PostgresStore {
    fn rotate_key(&self, old: Uuid, old_ends: Timestamp, new: NewKey) -> StoreFuture<'_, Option<KeyRow>> {
        Box::pin(async move { Ok(self.insert_key(Some((old, old_ends)), &new).await?.then(|| new.into_row())) })
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

    fn unknown_roles(&self, tenant_id: Uuid, names: Vec<String>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async move {
            let names: Vec<String> = names.iter().map(|name| clean(name).into_owned()).collect();
            let sql = "SELECT named.name FROM unnest($2) AS named (name)
                       WHERE NOT EXISTS (SELECT 1 FROM roles WHERE roles.tenant_id = $1 AND roles.name = named.name)";
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), (&names as _, Type::TEXT_ARRAY)]).await?;
            all(&rows, |columns| columns.text())
        })
    }
}
