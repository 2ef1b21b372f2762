//! Provider errors. The result names them, so that a failed provider is not mistaken for "no flights".

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reason in the report on a provider that failed or was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The daily or monthly quota is used up, or the provider rate-limits requests.
    Quota,
    /// The provider refused the keys; the operator must check them.
    Credentials,
    Timeout,
    /// The provider failed or refused the request.
    Upstream,
    /// The provider sent an invalid response.
    BadResponse,
    NotConfigured,
    /// The search was for awards only.
    AwardOnly,
}

/// An error of a provider. The reason is shown to the user; the cause is only for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    pub reason: Reason,
    pub cause: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    pub retry_after: Option<Duration>,
    pub status: Option<u16>,
}

impl ProviderError {
    pub(crate) fn new(reason: Reason, cause: impl Into<String>) -> Self {
        let retryable = matches!(reason, Reason::Timeout | Reason::Upstream | Reason::BadResponse);
        Self { reason, cause: cause.into(), retryable, retry_after: None, status: None }
    }

    pub(crate) fn not_retryable(mut self) -> Self {
        self.retryable = false;
        self
    }

    pub(crate) fn retryable_after(mut self, after: Option<Duration>) -> Self {
        self.retryable = true;
        self.retry_after = after;
        self
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}
