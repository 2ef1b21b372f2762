//! Error responses of Seats.aero: three formats of errors, two kinds of 429, and HTML with status 200.

use std::time::Duration;

use serde_json::Value;

use crate::provider_error::{ProviderError, Reason};

/// Classifies a response that is not a valid result.
pub fn refusal(status: u16, retry_after: Option<Duration>, body: &str) -> ProviderError {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    let field = |name: &str| parsed.as_ref().and_then(|value| value.get(name)).and_then(Value::as_str).map(str::to_owned);
    let reason_text = field("message").or_else(|| field("error")).unwrap_or_else(|| body.chars().take(200).collect());
    let cause = format!("Seats.aero answered {status}: {reason_text}");
    let error = match status {
        401 | 403 => ProviderError::new(Reason::Credentials, cause),
        // A 429 without `Retry-After` means that the daily quota is used up.
        429 if retry_after.is_none() => ProviderError::new(Reason::Quota, cause),
        429 => ProviderError::new(Reason::Quota, cause).retryable_after(retry_after),
        200..=299 if parsed.is_some() => ProviderError::new(Reason::BadResponse, cause).not_retryable(),
        200..=299 => ProviderError::new(Reason::BadResponse, cause),
        400..=499 => ProviderError::new(Reason::Upstream, cause).not_retryable(),
        _ => ProviderError::new(Reason::Upstream, cause),
    };
    error.with_status(status)
}
