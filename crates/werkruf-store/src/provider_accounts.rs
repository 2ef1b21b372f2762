//! State for each account at a provider: calls counted against a quota, tokens, and cached answers.
//!
//! Quotas and tokens belong to an account of the installation, not to a tenant: one key serves all tenants. Answers
//! are cached per tenant.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use werkruf_contract::Uuid;

use crate::StoreFuture;

/// An account at a provider, named without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderAccount {
    pub provider: String,
    pub account: String,
}

/// A token as it is stored: encrypted with the key of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedToken {
    pub sealed: Vec<u8>,
    pub expires_at: Timestamp,
}

/// Quotas, tokens and answers of providers, shared by every process on the database.
pub trait ProviderAccounts: Send + Sync {
    /// Counts one call of the day before it is sent, and returns its number, from 1. `None`: no call is left, by `limit`
    /// or by the provider's last report, and nothing is counted.
    fn spend_call(&self, account: ProviderAccount, day: Date, limit: u32) -> StoreFuture<'_, Option<i64>>;
    /// Stores how many calls the provider reported as left after this call.
    fn calls_left(&self, account: ProviderAccount, day: Date, call: i64, left: i64) -> StoreFuture<'_, ()>;
    /// The provider accepts no more calls on this day, whatever was counted.
    fn close_day(&self, account: ProviderAccount, day: Date) -> StoreFuture<'_, ()>;
    fn provider_token(&self, account: ProviderAccount) -> StoreFuture<'_, Option<SealedToken>>;
    /// Replaces an earlier token.
    fn put_provider_token(&self, account: ProviderAccount, token: SealedToken, now: Timestamp) -> StoreFuture<'_, ()>;
    /// Whether `owner` may fetch a new token: no other owner has a claim that has not expired. The claim lasts for `ttl`, by the clock
    /// that all processes share; the same owner may claim again to extend it.
    fn claim_token(&self, account: ProviderAccount, owner: Uuid, ttl: Duration, now: Timestamp) -> StoreFuture<'_, bool>;
    /// Releases the claim; does nothing where another owner has it by now.
    fn release_token(&self, account: ProviderAccount, owner: Uuid) -> StoreFuture<'_, ()>;
    /// The cached answer under this key, unless it has expired.
    fn cached_answer(&self, tenant_id: Uuid, key: String, now: Timestamp) -> StoreFuture<'_, Option<String>>;
    /// Caches an answer until then, and deletes expired ones.
    fn cache_answer(&self, tenant_id: Uuid, key: String, answer: String, until: Timestamp, now: Timestamp) -> StoreFuture<'_, ()>;
}
