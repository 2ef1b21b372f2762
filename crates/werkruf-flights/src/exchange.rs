//! Sends one request and reads one bounded response. The caller enforces the deadline.

use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::provider_error::{ProviderError, Reason};

/// The largest response that is read. The largest real response so far had 11.5 MB.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A response with any status.
pub(super) struct ProviderResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl ProviderResponse {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The beginning of the body, for error messages.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(64 * 1024)]).into_owned()
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        werkruf_llm::retry_after(&self.headers)
    }

    /// A header with an integer value.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.headers.get(name)?.to_str().ok()?.trim().parse().ok()
    }
}

/// Sends the request once, without retries.
pub(super) async fn exchange(request: RequestBuilder) -> Result<ProviderResponse, ProviderError> {
    let mut incoming = request.send().await.map_err(|error| transport_error(&error))?;
    let (status, headers) = (incoming.status().as_u16(), incoming.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = incoming.chunk().await.map_err(|error| transport_error(&error).with_status(status))? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Err(ProviderError::new(Reason::BadResponse, format!("more than {MAX_BYTES} bytes")).with_status(status));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(ProviderResponse { status, headers, body })
}

/// The error for a broken connection or an undecodable response. It does not contain the address, which may contain a key.
fn transport_error(error: &reqwest::Error) -> ProviderError {
    let mut cause = String::new();
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = source {
        cause = inner.to_string();
        source = inner.source();
    }
    if error.is_timeout() {
        return ProviderError::new(Reason::Timeout, format!("the connection took too long: {cause}"));
    }
    let reason = if error.is_decode() { Reason::BadResponse } else { Reason::Upstream };
    ProviderError::new(reason, format!("the connection failed: {cause}"))
}
