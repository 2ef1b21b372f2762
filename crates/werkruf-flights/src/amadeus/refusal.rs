//! Error responses of Amadeus: flat errors of the token endpoint, and lists of errors of the API. Error codes may be text.

use std::time::Duration;

use serde_json::Value;

use crate::provider_error::{ProviderError, Reason};

/// An error response, by what the client does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The token is not valid any more: fetch a new one and try again.
    NewToken(ProviderError),
    /// Too many requests: try again after a pause.
    Pause(ProviderError),
    /// Do not try again.
    Final(ProviderError),
}

impl Refusal {
    /// The error to report if no further attempt is made.
    pub fn into_error(self) -> ProviderError {
        match self {
            Self::NewToken(error) | Self::Pause(error) | Self::Final(error) => error,
        }
    }
}

/// Classifies an error response.
pub fn refusal(status: u16, retry_after: Option<Duration>, body: &str) -> Refusal {
    let parsed: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = parsed.pointer("/errors/0").unwrap_or(&parsed);
    let code = error.get("code").and_then(|code| code.as_i64().or_else(|| code.as_str()?.trim().parse().ok()));
    let field = |name: &str| error.get(name).and_then(Value::as_str);
    let parameter = error.pointer("/source/parameter").and_then(Value::as_str).map(|name| format!(" ({name})")).unwrap_or_default();
    let reason_text = field("detail").or_else(|| field("error_description")).or_else(|| field("title")).unwrap_or("no reason given");
    let cause = format!("Amadeus answered {status} {}: {reason_text}{parameter}", code.unwrap_or(0));
    let error = |reason| ProviderError::new(reason, cause.clone()).with_status(status);
    match (status, code) {
        (401, Some(38190 | 38192 | 38193)) => Refusal::NewToken(error(Reason::Credentials).retryable_after(None)),
        (429, Some(38195)) => Refusal::Final(error(Reason::Quota)),
        (429, _) => Refusal::Pause(error(Reason::Quota).retryable_after(retry_after)),
        (401 | 403, _) | (_, Some(38187)) => Refusal::Final(error(Reason::Credentials)),
        (200..=299, _) => Refusal::Final(error(Reason::BadResponse)),
        (400..=499, _) => Refusal::Final(error(Reason::Upstream).not_retryable()),
        _ => Refusal::Final(error(Reason::Upstream)),
    }
}
