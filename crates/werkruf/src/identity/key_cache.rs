//! The keys of an issuer, read over HTTP and kept.
//!
//! Invariants: one fetch at a time; an unknown key id causes at most one fetch per cool-down, whoever sends it; keys
//! that were read stay in use for a day while the issuer does not answer. A fetch notes that it began before it
//! waits, so clients that hang up cannot cause more of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Clock;

use super::jwks::KeySet;
use super::jwt::{Algorithm, Key, TokenFault};

/// Read again after this long, so that a key the issuer took back goes out of use.
const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// Older keys are not believed, however long the issuer is away.
const USABLE: SignedDuration = SignedDuration::from_hours(24);
/// Between two fetches that an unknown key id causes.
const COOL_DOWN: SignedDuration = SignedDuration::from_secs(10);
/// After a fetch that failed.
const RETRY: SignedDuration = SignedDuration::from_secs(2);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// While somebody else fetches, or just failed to: what is at hand is used.
const FETCHING: SignedDuration = SignedDuration::from_secs(10);
const MAX_BYTES: usize = 512 * 1024;

/// Where the keys come from, and what is known of them.
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
    /// When these keys were read; `None` before the first time.
    read_at: Option<Timestamp>,
    /// When a fetch last failed, or began and was not heard of again.
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
    /// Nothing is read before the first token comes.
    pub(super) fn new(url: String, client: reqwest::Client, clock: Clock) -> Self {
        Self { url, client, clock, state: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The key a token asks for; `None` when the issuer has no such key.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Option<Key>, TokenFault> {
        let before = self.state();
        if let Some(key) = before.keys.find(id, algorithm) {
            let now = self.clock.now();
            let enough = before.is_younger(FRESH, now) || within(before.failed_at, FETCHING, now);
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

    /// Whether a key of any kind has this name, as far as is known without asking.
    pub(super) fn names(&self, id: &str) -> bool {
        self.state().keys.names(id)
    }

    /// Notes why it is done, so that the next one has to wait.
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
            Err(reason) => tracing::error!(url = self.url, reason, "the keys that sign tokens cannot be read"),
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
        KeySet::parse(&body).ok_or_else(|| "the answer is no key set".to_owned())
    }
}
