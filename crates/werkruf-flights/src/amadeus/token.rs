//! The access token: fetched once for all processes, stored encrypted, renewed before it expires.
//!
//! Invariant: a search that got a 401 names the token that it used. Only the first such search fetches a new token; the others find the
//! newer one. Within a process a lock ensures this, between processes a claim in the store. A claim expires if its owner dies.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use werkruf_contract::{Clock, Deadline, Uuid};
use werkruf_store::{ProviderAccount, ProviderTokens, Seal, SealedToken};

use crate::provider_error::{ProviderError, Reason};

/// A token is not used shortly before it expires, because it could expire before the request arrives.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_secs(30);
/// How long refused keys are not tried again.
const REFUSAL_TTL: SignedDuration = SignedDuration::from_secs(5);

/// How long a process waits for the process that fetches the token, and how often it polls. After that it fetches a token itself.
const CLAIM_TTL: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// A token as the provider issued it.
pub(super) struct IssuedToken {
    pub(super) token: SecretString,
    pub(super) lifetime: SignedDuration,
}

#[derive(Default)]
struct TokenState {
    token: Option<(SecretString, Timestamp)>,
    /// The error and the end of the pause after refused keys.
    refused: Option<(ProviderError, Timestamp)>,
}

/// The only source of tokens in this process.
pub(super) struct TokenSource {
    account: ProviderAccount,
    accounts: Arc<dyn ProviderTokens>,
    /// Without an encryption key the token is kept only in memory.
    seal: Option<Seal>,
    clock: Clock,
    /// The owner id of this process's claims.
    owner: Uuid,
    state: Mutex<TokenState>,
}

impl TokenSource {
    pub(super) fn new(account: ProviderAccount, accounts: Arc<dyn ProviderTokens>, seal: Option<Seal>, clock: Clock) -> Self {
        Self { account, accounts, seal, owner: clock.new_id(), clock, state: Mutex::default() }
    }

    /// A valid token other than `bad`: from memory, from the store, or fetched. Concurrent callers wait for the one that fetches.
    pub(super) async fn token<F>(&self, bad: Option<&SecretString>, fetch: impl FnOnce() -> F + Send) -> Result<SecretString, ProviderError>
    where
        F: Future<Output = Result<IssuedToken, ProviderError>> + Send,
    {
        let mut state = self.state.lock().await;
        let now = self.clock.now();
        let is_bad = |token: &SecretString| bad.is_some_and(|bad| bad.expose_secret() == token.expose_secret());
        if let Some((token, until)) = &state.token
            && *until > now
            && !is_bad(token)
        {
            return Ok(token.clone());
        }
        if let Some((error, until)) = &state.refused
            && *until > now
        {
            return Err(error.clone());
        }
        if let Some((token, until)) = self.stored_or_claimed(now, is_bad).await {
            state.token = Some((token.clone(), until));
            return Ok(token);
        }
        let fetched = match fetch().await {
            Ok(issued) => {
                let expires_at = now.checked_add(issued.lifetime).unwrap_or(now);
                // The margin of a short-lived token is smaller.
                let margin = EXPIRY_MARGIN.min(issued.lifetime / 4);
                let until = expires_at.checked_sub(margin).unwrap_or(expires_at);
                self.store(&issued.token, expires_at, now).await;
                *state = TokenState { token: Some((issued.token.clone(), until)), refused: None };
                Ok(issued.token)
            }
            Err(error) => {
                if error.reason == Reason::Credentials {
                    state.refused = Some((error.clone(), now.checked_add(REFUSAL_TTL).unwrap_or(now)));
                }
                Err(error)
            }
        };
        self.release().await;
        fetched
    }

    /// A stored token that is not bad. Waits while another process fetches one. `None` means that this process must fetch the token.
    async fn stored_or_claimed(&self, now: Timestamp, is_bad: impl Fn(&SecretString) -> bool) -> Option<(SecretString, Timestamp)> {
        // Without an encryption key no token is shared between processes.
        self.seal.as_ref()?;
        let wait_limit = Deadline::after(CLAIM_TTL);
        loop {
            let found = self.stored(now).await.filter(|(token, _)| !is_bad(token));
            if found.is_some() {
                return found;
            }
            // If the store fails, the search continues without a claim.
            if self.accounts.claim_token(self.account.clone(), self.owner, CLAIM_TTL, now).await.unwrap_or(true) {
                // Another process may have stored a token between the read and the claim.
                let found = self.stored(now).await.filter(|(token, _)| !is_bad(token));
                if found.is_some() {
                    self.release().await;
                }
                return found;
            }
            if wait_limit.passed() {
                return None;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn release(&self) {
        if self.seal.is_some()
            && let Err(error) = self.accounts.release_token(self.account.clone(), self.owner).await
        {
            tracing::debug!(%error, "the claim for a token could not be released; it expires");
        }
    }

    fn purpose(&self) -> String {
        self.account.purpose()
    }

    /// The stored token: of another process, or of this one before a restart.
    async fn stored(&self, now: Timestamp) -> Option<(SecretString, Timestamp)> {
        let seal = self.seal.as_ref()?;
        let row = self.accounts.provider_token(self.account.clone()).await.ok()??;
        let until = row.expires_at.checked_sub(EXPIRY_MARGIN).ok()?;
        let token = (until > now).then(|| seal.open(&self.purpose(), &row.sealed)).flatten()?;
        Some((SecretString::from(token), until))
    }

    async fn store(&self, token: &SecretString, expires_at: Timestamp, now: Timestamp) {
        let Some(sealed) = self.seal.as_ref().and_then(|seal| seal.close(&self.purpose(), token.expose_secret())) else { return };
        if let Err(error) = self.accounts.put_provider_token(self.account.clone(), SealedToken { sealed, expires_at }, now).await {
            tracing::warn!(%error, "the token of a provider could not be stored; other processes fetch their own");
        }
    }
}
