//! Why a provider has nothing to say. Named in the answer, so that nobody takes silence for "no flights".

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the answer says about a provider that did not do its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The day's or month's calls are used up, or it asks to be left alone for now.
    Quota,
    /// The operator must look at the keys.
    Credentials,
    Timeout,
    /// It failed, or refused what we sent.
    Upstream,
    /// It sent something that is no answer.
    BadResponse,
    NotConfigured,
    /// Flights for money were not wanted.
    AwardOnly,
}

/// A provider's failure: the reason is for everybody, the cause for the operator's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    pub reason: Reason,
    pub cause: String,
    /// The same request may succeed later.
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
