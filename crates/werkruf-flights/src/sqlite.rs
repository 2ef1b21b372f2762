//! [`FlightStore`] on SQLite.

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;
use werkruf_store::sqlite::{Id, Stamp, first};
use werkruf_store::{INSTALLATION, ProviderAccount, SqliteStore, StoreError, StoreFuture};

use crate::store::FlightStore;

impl FlightStore for SqliteStore {
    fn spend_call(&self, account: ProviderAccount, day: Date, limit: u32) -> StoreFuture<'_, Option<i64>> {
        Box::pin(self.write_rows(move |c| spend(c, &account, day, limit)))
    }

    fn calls_left(&self, account: ProviderAccount, day: Date, call: i64, left: i64) -> StoreFuture<'_, ()> {
        Box::pin(self.write_rows(move |c| {
            // Responses may arrive out of order: the report of an earlier call counts only where it leaves fewer calls.
            let updated = c
                .prepare_cached(
                    "UPDATE provider_quota SET reported_by = max(reported_by, ?5),
                       ceiling = CASE WHEN ?5 >= reported_by THEN ?5 + ?6 ELSE min(ceiling, reported_by + ?6) END
                     WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND day = ?4",
                )?
                .execute(params![Id::from(INSTALLATION), account.provider, account.account, day.to_string(), call, left.max(0)])?;
            check_row(updated, &account)
        }))
    }

    fn close_day(&self, account: ProviderAccount, day: Date) -> StoreFuture<'_, ()> {
        Box::pin(self.write_rows(move |c| {
            let closed = c
                .prepare_cached(
                    "UPDATE provider_quota SET reported_by = used, ceiling = used
                     WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND day = ?4",
                )?
                .execute(params![Id::from(INSTALLATION), account.provider, account.account, day.to_string()])?;
            check_row(closed, &account)
        }))
    }

    fn cached_answer(&self, tenant_id: Uuid, key: String, now: Timestamp) -> StoreFuture<'_, Option<String>> {
        Box::pin(self.look_up(move |c| {
            let mut statement =
                c.prepare_cached("SELECT answer FROM provider_answers WHERE tenant_id = ?1 AND digest = ?2 AND expires_at > ?3")?;
            first(&mut statement, params![Id::from(tenant_id), key, Stamp::from(now)], |columns| columns.text())
        }))
    }

    fn cache_answer(&self, tenant_id: Uuid, key: String, answer: String, until: Timestamp, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(self.write_rows(move |c| {
            let now = Stamp::from(now);
            c.prepare_cached(
                "INSERT INTO provider_answers (tenant_id, digest, answer, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (tenant_id, digest) DO UPDATE
                   SET answer = excluded.answer, created_at = excluded.created_at, expires_at = excluded.expires_at",
            )?
            .execute(params![Id::from(tenant_id), key, answer, now, Stamp::from(until)])?;
            Ok(())
        }))
    }
}

fn spend(c: &Connection, account: &ProviderAccount, day: Date, limit: u32) -> Result<Option<i64>, StoreError> {
    let day = day.to_string();
    let installation = Id::from(INSTALLATION);
    c.prepare_cached(
        "INSERT INTO provider_quota (tenant_id, provider, account, day, used) VALUES (?1, ?2, ?3, ?4, 0)
         ON CONFLICT (tenant_id, provider, account, day) DO NOTHING",
    )?
    .execute(params![installation, account.provider, account.account, day])?;
    let mut statement = c.prepare_cached(
        "UPDATE provider_quota SET used = used + 1
         WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND day = ?4 AND used < ?5 AND (ceiling IS NULL OR used < ceiling)
         RETURNING used",
    )?;
    first(&mut statement, params![installation, account.provider, account.account, day, limit], |columns| columns.int())
}

fn check_row(rows: usize, account: &ProviderAccount) -> Result<(), StoreError> {
    if rows == 1 { Ok(()) } else { Err(StoreError::Moved { what: "provider account", id: account.provider.clone() }) }
}
