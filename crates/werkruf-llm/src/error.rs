//! The errors of model requests.

use std::time::Duration;

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFault {
    /// No connection; nothing was sent.
    Connect,
    /// The provider returned an error status or an error inside the stream.
    Refused { status: u16 },
    /// The first byte did not arrive in time.
    FirstByte,
    /// No further bytes arrived in time.
    Idle,
    /// The stream ended or broke before the provider reported the end of the answer.
    Incomplete,
    /// The bytes are not a valid answer.
    Protocol,
}

/// A model request without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault:?}: {message}")]
pub struct ModelError {
    pub fault: ModelFault,
    /// For the log; may contain text from the provider, cut to 512 bytes, with keys redacted.
    pub message: String,
    pub retry_after: Option<Duration>,
    /// The text that was received before the failure.
    pub received: String,
}

impl ModelError {
    /// An error of this kind.
    pub fn new(fault: ModelFault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into(), retry_after: None, received: String::new() }
    }

    /// Status 4xx except 408 and 429 is not retried; all other failures may be transient.
    pub const fn is_retryable(&self) -> bool {
        match self.fault {
            ModelFault::Refused { status } => matches!(status, 408 | 429) || status >= 500,
            ModelFault::Connect | ModelFault::FirstByte | ModelFault::Idle | ModelFault::Incomplete | ModelFault::Protocol => true,
        }
    }

    /// Whether the request may have reached the provider, and so may have cost money.
    pub const fn was_sent(&self) -> bool {
        !matches!(self.fault, ModelFault::Connect)
    }
}
