//! What must not be told: in a log, in an error, in a recording.

use secrecy::{ExposeSecret, SecretString};

use crate::reading::cut;

/// Of a provider's words so much is told.
const MAX_TOLD_BYTES: usize = 512;
const REDACTED: &str = "[redacted]";
/// A shorter header is no key, and taking it out would only spoil words.
const SHORTEST: usize = 8;

/// The keys of one server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets(std::sync::Arc<Vec<SecretString>>);

impl Secrets {
    /// The key, and what headers hold that may be one.
    pub(crate) fn new(key: Option<&SecretString>, headers: &[(String, SecretString)]) -> Self {
        let key = key.map(|key| key.expose_secret().to_owned());
        let values = headers.iter().map(|(_, value)| value.expose_secret());
        let values = values.map(|value| value.strip_prefix("Bearer ").unwrap_or(value).to_owned());
        let all = key.into_iter().chain(values.filter(|value| value.len() >= SHORTEST)).filter(|value| !value.is_empty());
        Self(std::sync::Arc::new(all.map(SecretString::from).collect()))
    }

    /// Texts for the log: keys taken out first, then cut, so that no half key stays at the edge.
    pub(crate) fn told(&self, words: &str) -> String {
        let mut words = words.to_owned();
        for secret in self.0.iter() {
            if words.contains(secret.expose_secret()) {
                words = words.replace(secret.expose_secret(), REDACTED);
            }
        }
        words.truncate(cut(&words, MAX_TOLD_BYTES).len());
        words
    }

    /// Takes the keys out of bytes.
    pub(crate) fn blot(&self, bytes: &mut Vec<u8>) {
        for secret in self.0.iter() {
            let secret = secret.expose_secret().as_bytes();
            let mut from = 0;
            while let Some(at) = bytes[from..].windows(secret.len()).position(|window| window == secret) {
                let at = from + at;
                bytes.splice(at..at + secret.len(), REDACTED.bytes());
                from = at + REDACTED.len();
            }
        }
    }

    /// How many bytes at the end may be the beginning of a key that goes on in the next piece.
    pub(crate) fn held_back(&self, bytes: &[u8]) -> usize {
        let ends_with_a_beginning = |length: &usize| {
            let end = &bytes[bytes.len() - length..];
            self.0.iter().any(|secret| secret.expose_secret().len() > *length && secret.expose_secret().as_bytes().starts_with(end))
        };
        let longest = self.0.iter().map(|secret| secret.expose_secret().len()).max().unwrap_or(0);
        (1..=longest.saturating_sub(1).min(bytes.len())).rev().find(ends_with_a_beginning).unwrap_or(0)
    }
}
