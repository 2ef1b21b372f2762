//! Redaction of keys in logs, errors and recordings.

use secrecy::{ExposeSecret, SecretString};

use crate::reader::cut;

/// How much of a provider's message is logged.
const MAX_LOG_BYTES: usize = 512;
const REDACTED: &str = "[redacted]";
/// A shorter header value is not a key, and redacting it would only damage the message.
const MIN_KEY_BYTES: usize = 8;

/// The keys of one server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets(std::sync::Arc<Vec<SecretString>>);

impl Secrets {
    /// The API key, and header values that may be keys.
    pub(crate) fn new(key: Option<&SecretString>, headers: &[(String, SecretString)]) -> Self {
        let key = key.map(|key| key.expose_secret().to_owned());
        let values = headers.iter().map(|(_, value)| value.expose_secret());
        let values = values.map(|value| value.strip_prefix("Bearer ").unwrap_or(value).to_owned());
        let all = key.into_iter().chain(values.filter(|value| value.len() >= MIN_KEY_BYTES)).filter(|value| !value.is_empty());
        Self(std::sync::Arc::new(all.map(SecretString::from).collect()))
    }

    /// A message for the log. Keys are redacted before the message is cut, so that no part of a key remains at the cut.
    pub(crate) fn redact(&self, message: &str) -> String {
        let mut message = message.to_owned();
        for secret in self.0.iter() {
            if message.contains(secret.expose_secret()) {
                message = message.replace(secret.expose_secret(), REDACTED);
            }
        }
        message.truncate(cut(&message, MAX_LOG_BYTES).len());
        message
    }

    /// Redacts keys in bytes.
    pub(crate) fn redact_bytes(&self, bytes: &mut Vec<u8>) {
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

    /// How many bytes at the end may be the start of a key that continues in the next chunk.
    pub(crate) fn partial_key_length(&self, bytes: &[u8]) -> usize {
        let ends_with_a_beginning = |length: &usize| {
            let end = &bytes[bytes.len() - length..];
            self.0.iter().any(|secret| secret.expose_secret().len() > *length && secret.expose_secret().as_bytes().starts_with(end))
        };
        let longest = self.0.iter().map(|secret| secret.expose_secret().len()).max().unwrap_or(0);
        (1..=longest.saturating_sub(1).min(bytes.len())).rev().find(ends_with_a_beginning).unwrap_or(0)
    }
}
