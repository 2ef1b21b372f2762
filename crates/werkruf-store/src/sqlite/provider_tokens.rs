//! [`ProviderTokens`] on SQLite.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{all, first};
use super::text::{Id, Stamp};
use crate::{INSTALLATION, ProviderAccount, ProviderTokens, SealedToken, StoreError, StoreFuture};

impl ProviderTokens for SqliteStore {
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

    fn provider_tokens(&self) -> StoreFuture<'_, Vec<(ProviderAccount, SealedToken)>> {
        Box::pin(self.readers.list(move |c| {
            let sql = "SELECT provider, account, sealed, expires_at FROM provider_tokens WHERE tenant_id = ?1 AND expires_at IS NOT NULL";
            all(&mut *c.prepare_cached(sql)?, params![Id::from(INSTALLATION)], |columns| {
                let account = ProviderAccount { provider: columns.text()?, account: columns.text()? };
                Ok((account, SealedToken { sealed: columns.bytes()?.to_vec(), expires_at: columns.time()? }))
            })
        }))
    }

    fn replace_provider_token(&self, account: ProviderAccount, old: Vec<u8>, new: SealedToken, now: Timestamp) -> StoreFuture<'_, bool> {
        let sql = "UPDATE provider_tokens SET sealed = ?5, expires_at = ?6, updated_at = ?7
                   WHERE tenant_id = ?1 AND provider = ?2 AND account = ?3 AND sealed = ?4";
        Box::pin(self.writer.submit(move |c| {
            let (until, now) = (Stamp::from(new.expires_at), Stamp::from(now));
            let values = params![Id::from(INSTALLATION), account.provider, account.account, old, new.sealed, until, now];
            Ok(c.prepare_cached(sql)?.execute(values)? == 1)
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
}

fn check_row(rows: usize, account: &ProviderAccount) -> Result<(), StoreError> {
    if rows == 1 { Ok(()) } else { Err(StoreError::Moved { what: "provider account", id: account.provider.clone() }) }
}
