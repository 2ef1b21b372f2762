//! [`ProviderAccounts`] on PostgreSQL: one row per account, shared by all processes.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::first;
use super::text::clean;
use crate::{ProviderAccount, ProviderAccounts, SealedToken, StoreError, StoreFuture};

/// The tenant of rows that belong to the installation itself.
const INSTALLATION: Uuid = Uuid::nil();
const INSTALLATION_ROLE: DbRole = DbRole::Tenant(INSTALLATION);

impl ProviderAccounts for PostgresStore {
    fn spend_call(&self, account: ProviderAccount, day: Date, limit: u32) -> StoreFuture<'_, Option<i64>> {
        // Counted twice where the answer of the first attempt was lost: one call too few that day, never one too many.
        let sql = "INSERT INTO provider_quota AS quota (tenant_id, provider, account, day, used) SELECT $1, $2, $3, $4, 1 WHERE $5 > 0
                   ON CONFLICT (tenant_id, provider, account, day) DO UPDATE SET used = quota.used + 1
                   WHERE quota.used < $5 AND (quota.ceiling IS NULL OR quota.used < quota.ceiling) RETURNING used";
        Box::pin(async move {
            let (provider, name, limit) = (clean(&account.provider), clean(&account.account), i64::from(limit));
            let values = [p(&INSTALLATION), p(&provider), p(&name), p(&day), p(&limit)];
            first(&self.query(INSTALLATION_ROLE, sql, &values).await?, |columns| columns.int())
        })
    }

    fn calls_left(&self, account: ProviderAccount, day: Date, call: i64, left: i64) -> StoreFuture<'_, ()> {
        // Responses overtake one another: the number from an earlier call counts only where it is less.
        let sql = "UPDATE provider_quota SET told_by = greatest(told_by, $5),
                     ceiling = CASE WHEN $5 >= told_by THEN $5 + $6 ELSE least(ceiling, told_by + $6) END
                   WHERE tenant_id = $1 AND provider = $2 AND account = $3 AND day = $4 RETURNING true";
        Box::pin(async move {
            let (provider, name, left) = (clean(&account.provider), clean(&account.account), left.max(0));
            let values = [p(&INSTALLATION), p(&provider), p(&name), p(&day), p(&call), p(&left)];
            one_row(&self.query(INSTALLATION_ROLE, sql, &values).await?, &account)
        })
    }

    fn close_day(&self, account: ProviderAccount, day: Date) -> StoreFuture<'_, ()> {
        let sql = "UPDATE provider_quota SET told_by = used, ceiling = used
                   WHERE tenant_id = $1 AND provider = $2 AND account = $3 AND day = $4 RETURNING true";
        Box::pin(async move {
            let (provider, name) = (clean(&account.provider), clean(&account.account));
            one_row(&self.query(INSTALLATION_ROLE, sql, &[p(&INSTALLATION), p(&provider), p(&name), p(&day)]).await?, &account)
        })
    }

    fn provider_token(&self, account: ProviderAccount) -> StoreFuture<'_, Option<SealedToken>> {
        let sql = "SELECT sealed, expires_at FROM provider_tokens
                   WHERE tenant_id = $1 AND provider = $2 AND account = $3 AND expires_at IS NOT NULL";
        Box::pin(async move {
            let (provider, name) = (clean(&account.provider), clean(&account.account));
            first(&self.query(INSTALLATION_ROLE, sql, &[p(&INSTALLATION), p(&provider), p(&name)]).await?, |columns| {
                Ok(SealedToken { sealed: columns.bytes()?.to_vec(), expires_at: columns.time()? })
            })
        })
    }

    fn put_provider_token(&self, account: ProviderAccount, token: SealedToken, now: Timestamp) -> StoreFuture<'_, ()> {
        let sql = "INSERT INTO provider_tokens (tenant_id, provider, account, sealed, expires_at, created_at, updated_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $6)
                   ON CONFLICT (tenant_id, provider, account) DO UPDATE
                     SET sealed = excluded.sealed, expires_at = excluded.expires_at, updated_at = excluded.updated_at RETURNING true";
        Box::pin(async move {
            let (provider, name) = (clean(&account.provider), clean(&account.account));
            let (until, now) = (ms(token.expires_at), ms(now));
            let values = [p(&INSTALLATION), p(&provider), p(&name), p(&token.sealed), p(&until), p(&now)];
            one_row(&self.query(INSTALLATION_ROLE, sql, &values).await?, &account)
        })
    }

    fn claim_token(&self, account: ProviderAccount, owner: Uuid, ttl: Duration, _now: Timestamp) -> StoreFuture<'_, bool> {
        // The clocks of processes differ; the database has one.
        let sql = "INSERT INTO provider_claims AS claim (tenant_id, provider, account, owner, expires_at)
                   VALUES ($1, $2, $3, $4, date_trunc('milliseconds', clock_timestamp()) + make_interval(secs => $5))
                   ON CONFLICT (tenant_id, provider, account) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
                   WHERE claim.owner = excluded.owner OR claim.expires_at <= clock_timestamp() RETURNING true";
        Box::pin(async move {
            let (provider, name, ttl) = (clean(&account.provider), clean(&account.account), ttl.as_secs_f64());
            let values = [p(&INSTALLATION), p(&provider), p(&name), p(&owner), (&ttl as _, Type::FLOAT8)];
            Ok(self.query(INSTALLATION_ROLE, sql, &values).await?.len() == 1)
        })
    }

    fn release_token(&self, account: ProviderAccount, owner: Uuid) -> StoreFuture<'_, ()> {
        // Deletes nothing where another process has claimed the token meanwhile.
        let sql = "DELETE FROM provider_claims WHERE tenant_id = $1 AND provider = $2 AND account = $3 AND owner = $4";
        Box::pin(async move {
            let (provider, name) = (clean(&account.provider), clean(&account.account));
            self.query(INSTALLATION_ROLE, sql, &[p(&INSTALLATION), p(&provider), p(&name), p(&owner)]).await?;
            Ok(())
        })
    }

    fn cached_answer(&self, tenant_id: Uuid, key: String, now: Timestamp) -> StoreFuture<'_, Option<String>> {
        let sql = "SELECT answer FROM provider_answers WHERE tenant_id = $1 AND digest = $2 AND expires_at > $3";
        Box::pin(async move {
            let (key, now) = (clean(&key), ms(now));
            first(&self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&key), p(&now)]).await?, |columns| columns.text())
        })
    }

    fn cache_answer(&self, tenant_id: Uuid, key: String, answer: String, until: Timestamp, now: Timestamp) -> StoreFuture<'_, ()> {
        let store = "INSERT INTO provider_answers (tenant_id, digest, answer, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)
                    ON CONFLICT (tenant_id, digest) DO UPDATE
                      SET answer = excluded.answer, created_at = excluded.created_at, expires_at = excluded.expires_at";
        // Of every tenant: one that never searches again would keep its last answers for ever. Rows that another process has locked are
        // skipped.
        let delete_expired = "DELETE FROM provider_answers WHERE ctid = ANY (ARRAY(
                           SELECT ctid FROM provider_answers WHERE expires_at <= $1 ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED))";
        Box::pin(async move {
            let (key, answer, until, now) = (clean(&key), clean(&answer), ms(until), ms(now));
            let values = [p(&tenant_id), p(&key), p(&answer), p(&now), p(&until)];
            self.query(DbRole::Tenant(tenant_id), store, &values).await?;
            self.query(DbRole::System, delete_expired, &[p(&now)]).await?;
            Ok(())
        })
    }
}

fn one_row(rows: &[Row], account: &ProviderAccount) -> Result<(), StoreError> {
    if rows.len() == 1 { Ok(()) } else { Err(StoreError::Moved { what: "provider account", id: account.provider.clone() }) }
}
