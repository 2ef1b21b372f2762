//! The keys of an issuer, fetched over HTTP and cached.
//!
//! Invariants: one fetch at a time; unknown key ids cause at most one fetch per cool-down; cached keys stay usable for a day while
//! the issuer does not answer. A fetch records its start before it waits, so requests that disconnect cannot cause more fetches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Clock;

use super::jwks::KeySet;
use super::jwt::{Algorithm, Key, TokenFault};

/// Keys are fetched again after this time, so that a revoked key is dropped.
const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// Older keys are not used, even if the issuer does not answer.
const USABLE: SignedDuration = SignedDuration::from_hours(24);
/// The least time between two fetches caused by unknown key ids.
const COOL_DOWN: SignedDuration = SignedDuration::from_secs(10);
/// The least time between a failed fetch and the next one.
const RETRY: SignedDuration = SignedDuration::from_secs(2);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// For this long after the start of a fetch that has not succeeded, the cached keys are used without waiting.
const FETCH_GRACE: SignedDuration = SignedDuration::from_secs(10);
const MAX_BYTES: usize = 512 * 1024;

/// The cached keys of one issuer.
pub(super) struct KeyCache {
    url: String,
    client: reqwest::Client,
    clock: Clock,
    state: Mutex<State>,
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default, Clone)]
struct State {
    keys: Arc<KeySet>,
    /// When the keys were fetched; `None` before the first fetch.
    read_at: Option<Timestamp>,
    /// When the last fetch started that has not succeeded.
    failed_at: Option<Timestamp>,
    /// When an unknown key id last caused a fetch.
    missed_at: Option<Timestamp>,
}

impl State {
    fn age(&self, now: Timestamp) -> Option<SignedDuration> {
        self.read_at.map(|read| now.duration_since(read))
    }

    fn is_younger(&self, span: SignedDuration, now: Timestamp) -> bool {
        self.age(now).is_some_and(|age| age < span)
    }
}

fn within(since: Option<Timestamp>, span: SignedDuration, now: Timestamp) -> bool {
    since.is_some_and(|since| now.duration_since(since) < span)
}

impl KeyCache {
    /// Creates an empty cache. The first token causes the first fetch.
    pub(super) fn new(url: String, client: reqwest::Client, clock: Clock) -> Self {
        Self { url, client, clock, state: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The key for a token; `None` if the issuer has no such key.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Option<Key>, TokenFault> {
        let before = self.state();
        if let Some(key) = before.keys.find(id, algorithm) {
            let now = self.clock.now();
            let enough = before.is_younger(FRESH, now) || within(before.failed_at, FETCH_GRACE, now);
            if enough && before.is_younger(USABLE, now) {
                return Ok(Some(key.clone()));
            }
        }
        let _guard = self.fetching.lock().await;
        if self.state().read_at == before.read_at && self.may_fetch() {
            self.fetch().await;
        }
        let state = self.state();
        if !state.is_younger(USABLE, self.clock.now()) {
            return Err(TokenFault::KeysUnavailable);
        }
        Ok(state.keys.find(id, algorithm).cloned())
    }

    /// Whether a cached key with any algorithm has this key id.
    pub(super) fn has_key_id(&self, id: &str) -> bool {
        self.state().keys.has_key_id(id)
    }

    /// Whether a fetch is allowed now. Records the fetch, so that the next one has to wait.
    fn may_fetch(&self) -> bool {
        let (state, now) = (self.state(), self.clock.now());
        if within(state.failed_at, RETRY, now) {
            return false;
        }
        if state.is_younger(FRESH, now) {
            if within(state.missed_at, COOL_DOWN, now) {
                return false;
            }
            self.change(|state| state.missed_at = Some(now));
        }
        self.change(|state| state.failed_at = Some(now));
        true
    }

    async fn fetch(&self) {
        match self.read().await {
            Ok(keys) => {
                let now = self.clock.now();
                self.change(|state| {
                    state.keys = Arc::new(keys);
                    state.read_at = Some(now);
                    state.failed_at = None;
                });
            }
            Err(reason) => tracing::error!(url = self.url, reason, "the keys of a token issuer cannot be fetched"),
        }
    }

    async fn read(&self) -> Result<KeySet, String> {
        let sent = self.client.get(&self.url).timeout(FETCH_TIMEOUT).send().await;
        let mut response = sent.map_err(|error| error.to_string())?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(format!("the answer was {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BYTES {
                return Err(format!("the answer is longer than {MAX_BYTES} bytes"));
            }
        }
        KeySet::parse(&body).ok_or_else(|| "the answer is not a key set".to_owned())
    }
}
