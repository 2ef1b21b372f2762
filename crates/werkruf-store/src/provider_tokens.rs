//! Tokens that a provider issues for an account, and who may fetch a new one.
//!
//! A token belongs to an account of the installation, not to a tenant: one key serves all tenants.

use std::time::Duration;

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::StoreFuture;

/// The tenant of rows that belong to the installation itself.
pub const INSTALLATION: Uuid = Uuid::nil();

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

/// Tokens of providers, shared by every process on the database.
pub trait ProviderTokens: Send + Sync {
    fn provider_token(&self, account: ProviderAccount) -> StoreFuture<'_, Option<SealedToken>>;
    /// Replaces an earlier token.
    fn put_provider_token(&self, account: ProviderAccount, token: SealedToken, now: Timestamp) -> StoreFuture<'_, ()>;
    /// All tokens.
    fn provider_tokens(&self) -> StoreFuture<'_, Vec<(ProviderAccount, SealedToken)>>;
    /// Replaces a token that is still the one with these bytes; false where it is another one by now.
    fn replace_provider_token(&self, account: ProviderAccount, old: Vec<u8>, new: SealedToken, now: Timestamp) -> StoreFuture<'_, bool>;
    /// Whether `owner` may fetch a new token: no other owner has a claim that has not expired. The claim lasts for `ttl`, by the clock
    /// that all processes share; the same owner may claim again to extend it.
    fn claim_token(&self, account: ProviderAccount, owner: Uuid, ttl: Duration, now: Timestamp) -> StoreFuture<'_, bool>;
    /// Releases the claim; does nothing where another owner has it by now.
    fn release_token(&self, account: ProviderAccount, owner: Uuid) -> StoreFuture<'_, ()>;
}
