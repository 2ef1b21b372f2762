//! What the house owes its providers: calls counted against a quota, their tokens, and answers worth keeping a while.
//!
//! Quotas and tokens belong to an account of the installation, not to a tenant: one key serves all of them. Answers
//! are kept per tenant.

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

/// A token as it is stored: readable only with the house's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedToken {
    pub sealed: Vec<u8>,
    pub expires_at: Timestamp,
}

/// Quotas, tokens and answers of providers, shared by every process on the database.
pub trait ProviderAccounts: Send + Sync {
    /// Counts one call of the day before it leaves: which one it is, counted from 1. `None`: there is none left, by `limit`
    /// or by what the provider last said, and nothing is counted.
    fn spend_call(&self, account: ProviderAccount, day: Date, limit: u32) -> StoreFuture<'_, Option<i64>>;
    /// What the provider said was left after this call.
    fn calls_left(&self, account: ProviderAccount, day: Date, call: i64, left: i64) -> StoreFuture<'_, ()>;
    /// The provider takes no more calls on this day, whatever was counted.
    fn close_day(&self, account: ProviderAccount, day: Date) -> StoreFuture<'_, ()>;
    fn provider_token(&self, account: ProviderAccount) -> StoreFuture<'_, Option<SealedToken>>;
    /// Takes the place of an earlier one.
    fn put_provider_token(&self, account: ProviderAccount, token: SealedToken, now: Timestamp) -> StoreFuture<'_, ()>;
    /// Whether it is for `owner` to fetch a new token: nobody else is at it, or their time is over. Stands for `ttl`, by the clock all
    /// processes share; who claims again has longer.
    fn claim_token(&self, account: ProviderAccount, owner: Uuid, ttl: Duration, now: Timestamp) -> StoreFuture<'_, bool>;
    /// Gives the claim back; nothing where it is somebody else's by now.
    fn release_token(&self, account: ProviderAccount, owner: Uuid) -> StoreFuture<'_, ()>;
    /// An answer kept under this key that is still good.
    fn cached_answer(&self, tenant_id: Uuid, key: String, now: Timestamp) -> StoreFuture<'_, Option<String>>;
    /// Keeps an answer until then, and forgets those whose time is over.
    fn cache_answer(&self, tenant_id: Uuid, key: String, answer: String, until: Timestamp, now: Timestamp) -> StoreFuture<'_, ()>;
}
