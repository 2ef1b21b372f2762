//! [`FlightStore`] on PostgreSQL: one row per account, shared by all processes.

use jiff::Timestamp;
use jiff::civil::Date;
use tokio_postgres::Row;
use werkruf_contract::Uuid;
use werkruf_store::postgres::{DbRole, clean, first, ms, p};
use werkruf_store::{INSTALLATION, PostgresStore, ProviderAccount, StoreError, StoreFuture};

use crate::store::FlightStore;

const INSTALLATION_ROLE: DbRole = DbRole::Tenant(INSTALLATION);

impl FlightStore for PostgresStore {
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
        let sql = "UPDATE provider_quota SET reported_by = greatest(reported_by, $5),
                     ceiling = CASE WHEN $5 >= reported_by THEN $5 + $6 ELSE least(ceiling, reported_by + $6) END
                   WHERE tenant_id = $1 AND provider = $2 AND account = $3 AND day = $4 RETURNING true";
        Box::pin(async move {
            let (provider, name, left) = (clean(&account.provider), clean(&account.account), left.max(0));
            let values = [p(&INSTALLATION), p(&provider), p(&name), p(&day), p(&call), p(&left)];
            one_row(&self.query(INSTALLATION_ROLE, sql, &values).await?, &account)
        })
    }

    fn close_day(&self, account: ProviderAccount, day: Date) -> StoreFuture<'_, ()> {
        let sql = "UPDATE provider_quota SET reported_by = used, ceiling = used
                   WHERE tenant_id = $1 AND provider = $2 AND account = $3 AND day = $4 RETURNING true";
        Box::pin(async move {
            let (provider, name) = (clean(&account.provider), clean(&account.account));
            one_row(&self.query(INSTALLATION_ROLE, sql, &[p(&INSTALLATION), p(&provider), p(&name), p(&day)]).await?, &account)
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
        Box::pin(async move {
            let (key, answer, until, now) = (clean(&key), clean(&answer), ms(until), ms(now));
            let values = [p(&tenant_id), p(&key), p(&answer), p(&now), p(&until)];
            self.query(DbRole::Tenant(tenant_id), store, &values).await?;
            Ok(())
        })
    }
}

fn one_row(rows: &[Row], account: &ProviderAccount) -> Result<(), StoreError> {
    if rows.len() == 1 { Ok(()) } else { Err(StoreError::Moved { what: "provider account", id: account.provider.clone() }) }
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
