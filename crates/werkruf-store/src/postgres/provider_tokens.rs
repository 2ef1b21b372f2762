//! [`ProviderTokens`] on PostgreSQL: one row per account, shared by all processes.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::{all, first};
use super::text::clean;
use crate::{INSTALLATION, ProviderAccount, ProviderTokens, SealedToken, StoreError, StoreFuture};

const INSTALLATION_ROLE: DbRole = DbRole::Tenant(INSTALLATION);

impl ProviderTokens for PostgresStore {
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

    fn provider_tokens(&self) -> StoreFuture<'_, Vec<(ProviderAccount, SealedToken)>> {
        let sql = "SELECT provider, account, sealed, expires_at FROM provider_tokens WHERE tenant_id = $1 AND expires_at IS NOT NULL";
        Box::pin(async move {
            all(&self.query(INSTALLATION_ROLE, sql, &[p(&INSTALLATION)]).await?, |columns| {
                let account = ProviderAccount { provider: columns.text()?, account: columns.text()? };
                Ok((account, SealedToken { sealed: columns.bytes()?.to_vec(), expires_at: columns.time()? }))
            })
        })
    }

    fn replace_provider_token(&self, account: ProviderAccount, old: Vec<u8>, new: SealedToken, now: Timestamp) -> StoreFuture<'_, bool> {
        let sql = "UPDATE provider_tokens SET sealed = $5, expires_at = $6, updated_at = $7
                   WHERE tenant_id = $1 AND provider = $2 AND account = $3 AND sealed = $4 RETURNING true";
        Box::pin(async move {
            let (provider, name) = (clean(&account.provider), clean(&account.account));
            let (until, now) = (ms(new.expires_at), ms(now));
            let values = [p(&INSTALLATION), p(&provider), p(&name), p(&old), p(&new.sealed), p(&until), p(&now)];
            Ok(!self.query(INSTALLATION_ROLE, sql, &values).await?.is_empty())
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
}

fn one_row(rows: &[Row], account: &ProviderAccount) -> Result<(), StoreError> {
    if rows.len() == 1 { Ok(()) } else { Err(StoreError::Moved { what: "provider account", id: account.provider.clone() }) }
}
