//! One request out, one bounded answer back. Deadlines belong to whoever asks.

use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::provider_error::{ProviderError, Reason};

/// The largest answer that is read; the largest one seen had 11.5 MB.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// An answer, whatever its status.
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

    /// The beginning of the body, for words about it.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(64 * 1024)]).into_owned()
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        werkruf_llm::retry_after(&self.headers)
    }

    /// A header that is a whole number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.headers.get(name)?.to_str().ok()?.trim().parse().ok()
    }
}

/// Sends once.
pub(super) async fn exchange(request: RequestBuilder) -> Result<ProviderResponse, ProviderError> {
    let mut incoming = request.send().await.map_err(|error| lost(&error))?;
    let (status, headers) = (incoming.status().as_u16(), incoming.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = incoming.chunk().await.map_err(|error| lost(&error).with_status(status))? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Err(ProviderError::new(Reason::BadResponse, format!("more than {MAX_BYTES} bytes")).with_status(status));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(ProviderResponse { status, headers, body })
}

/// A broken connection, or an answer that cannot be unpacked. Addresses are left out: they may carry a key.
fn lost(error: &reqwest::Error) -> ProviderError {
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
    ProviderError::new(reason, format!("the exchange broke off: {cause}"))
}
