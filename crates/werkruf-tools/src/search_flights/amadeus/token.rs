//! The access token: fetched once for everybody, kept sealed in the store, renewed before it ends.
//!
//! Invariant: whoever finds it bad names the token it used. Only the first of them fetches; the others find a newer one. Within a
//! process they wait at a lock, between processes for a claim in the store, which ends by itself when its owner is gone.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use werkruf_contract::{Clock, Deadline, Uuid};
use werkruf_store::{ProviderAccount, ProviderAccounts, SealedToken};

use crate::search_flights::provider_error::{ProviderError, Reason};
use crate::search_flights::seal::Seal;

/// A token is not used in its last moments: it would end on its way.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_secs(30);
/// How long a refusal of the keys themselves stands before they are tried again.
const REFUSAL_TTL: SignedDuration = SignedDuration::from_secs(5);

/// How long others wait for the process that fetches, and how often they look. One that takes longer is not worth waiting for.
const CLAIM_TTL: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// A token as the provider gave it.
pub(super) struct IssuedToken {
    pub(super) token: SecretString,
    pub(super) lifetime: SignedDuration,
}

#[derive(Default)]
struct TokenState {
    token: Option<(SecretString, Timestamp)>,
    /// The keys were refused; asking again at once would only be refused again.
    refused: Option<(ProviderError, Timestamp)>,
}

/// The one place tokens come from.
pub(super) struct TokenSource {
    account: ProviderAccount,
    accounts: Arc<dyn ProviderAccounts>,
    /// Without a key nothing is stored; the token lives in memory.
    seal: Option<Seal>,
    clock: Clock,
    /// This process, among those that share the store.
    owner: Uuid,
    state: Mutex<TokenState>,
}

impl TokenSource {
    pub(super) fn new(account: ProviderAccount, accounts: Arc<dyn ProviderAccounts>, seal: Option<Seal>, clock: Clock) -> Self {
        Self { account, accounts, seal, owner: clock.new_id(), clock, state: Mutex::default() }
    }

    /// A token that is good for a while and is not `bad`: held, stored, or fetched. All who ask wait for the one who fetches.
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
                // A short-lived token keeps most of its life.
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

    /// A stored token that is not bad, waited for while another process fetches it. `None`: it is for us to fetch.
    async fn stored_or_claimed(&self, now: Timestamp, is_bad: impl Fn(&SecretString) -> bool) -> Option<(SecretString, Timestamp)> {
        // Without a key there is nothing to share, and nobody to wait for.
        self.seal.as_ref()?;
        let wait_limit = Deadline::after(CLAIM_TTL);
        loop {
            let found = self.stored(now).await.filter(|(token, _)| !is_bad(token));
            if found.is_some() {
                return found;
            }
            // A store that does not answer keeps nobody from searching.
            if self.accounts.claim_token(self.account.clone(), self.owner, CLAIM_TTL, now).await.unwrap_or(true) {
                // Between our look and our claim somebody may have stored one.
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
            tracing::debug!(%error, "the claim for a token could not be given back; it ends by itself");
        }
    }

    fn purpose(&self) -> String {
        format!("{}/{}", self.account.provider, self.account.account)
    }

    /// Another process's, or our own from before a restart.
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
            tracing::warn!(%error, "a provider's token could not be stored; other processes fetch their own");
        }
    }
}
