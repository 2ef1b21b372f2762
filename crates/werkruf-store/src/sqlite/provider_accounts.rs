//! [`ProviderAccounts`] on SQLite.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::first;
use super::text::{Id, Stamp};
use crate::{ProviderAccount, ProviderAccounts, SealedToken, StoreError, StoreFuture};

/// The tenant id of rows that belong to the installation.
const INSTALLATION: Uuid = Uuid::nil();

impl ProviderAccounts for SqliteStore {
    fn spend_call(&self, account: ProviderAccount, day: Date, limit: u32) -> StoreFuture<'_, Option<i64>> {
        Box::pin(self.writer.submit(move |c| spend(c, &account, day, limit)))
    }

    fn calls_left(&self, account: ProviderAccount, day: Date, call: i64, left: i64) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            // Responses may arrive out of order: the report of an earlier call counts only where it leaves fewer calls.
            let updated = c
                .prepare_cached(
                    "UPDATE provider_quota SET told_by = max(told_by, ?5),
                       ceiling = CASE WHEN ?5 >= told_by THEN ?5 + ?6 ELSE min(ceiling, told_by + ?6) END
                     WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND day = ?4",
                )?
                .execute(params![Id::from(INSTALLATION), account.provider, account.account, day.to_string(), call, left.max(0)])?;
            check_row(updated, &account)
        }))
    }

    fn close_day(&self, account: ProviderAccount, day: Date) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            let closed = c
                .prepare_cached(
                    "UPDATE provider_quota SET told_by = used, ceiling = used
                     WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND day = ?4",
                )?
                .execute(params![Id::from(INSTALLATION), account.provider, account.account, day.to_string()])?;
            check_row(closed, &account)
        }))
    }

    fn provider_token(&self, account: ProviderAccount) -> StoreFuture<'_, Option<SealedToken>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(
                "SELECT sealed, expires_at FROM provider_tokens
                 WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND expires_at IS NOT NULL",
            )?;
            first(&mut statement, params![Id::from(INSTALLATION), account.provider, account.account], |columns| {
                Ok(SealedToken { sealed: columns.bytes()?.to_vec(), expires_at: columns.time()? })
            })
        }))
    }

    fn put_provider_token(&self, account: ProviderAccount, token: SealedToken, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            let now = Stamp::from(now);
            let written = c
                .prepare_cached(
                    "INSERT INTO provider_tokens (tenant_id, provider, account, sealed, expires_at, created_at, updated_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)
                     ON CONFLICT (tenant_id, provider, account) DO UPDATE
                       SET sealed = excluded.sealed, expires_at = excluded.expires_at, updated_at = excluded.updated_at",
                )?
                .execute(params![
                    Id::from(INSTALLATION),
                    account.provider,
                    account.account,
                    token.sealed,
                    Stamp::from(token.expires_at),
                    now
                ])?;
            check_row(written, &account)
        }))
    }

    fn claim_token(&self, account: ProviderAccount, owner: Uuid, ttl: Duration, now: Timestamp) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let until = now.checked_add(ttl).unwrap_or(now);
            let claimed = c
                .prepare_cached(
                    "INSERT INTO provider_claims (tenant_id, provider, account, owner, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (tenant_id, provider, account) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
                     WHERE owner = excluded.owner OR expires_at <= ?6",
                )?
                .execute(params![
                    Id::from(INSTALLATION),
                    account.provider,
                    account.account,
                    Id::from(owner),
                    Stamp::from(until),
                    Stamp::from(now)
                ])?;
            Ok(claimed == 1)
        }))
    }

    fn release_token(&self, account: ProviderAccount, owner: Uuid) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            // No row matches where another owner has the claim by now.
            c.prepare_cached("DELETE FROM provider_claims WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND owner = ?4")?
                .execute(params![Id::from(INSTALLATION), account.provider, account.account, Id::from(owner)])?;
            Ok(())
        }))
    }

    fn cached_answer(&self, tenant_id: Uuid, key: String, now: Timestamp) -> StoreFuture<'_, Option<String>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement =
                c.prepare_cached("SELECT answer FROM provider_answers WHERE tenant_id = ?1 AND digest = ?2 AND expires_at > ?3")?;
            first(&mut statement, params![Id::from(tenant_id), key, Stamp::from(now)], |columns| columns.text())
        }))
    }

    fn cache_answer(&self, tenant_id: Uuid, key: String, answer: String, until: Timestamp, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            let now = Stamp::from(now);
            c.prepare_cached("DELETE FROM provider_answers WHERE expires_at <= ?1")?.execute(params![now])?;
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
