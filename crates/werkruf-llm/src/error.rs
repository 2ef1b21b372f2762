//! How a model request fails.

use std::time::Duration;

/// Where it went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFault {
    /// No connection: nothing was sent.
    Connect,
    /// The provider answered with an error status, or an error inside the stream.
    Refused { status: u16 },
    /// The first byte did not come in time.
    FirstByte,
    /// The stream stopped talking.
    Idle,
    /// The stream ended or broke before the provider said that it was done.
    Incomplete,
    /// The bytes are no answer.
    Protocol,
}

/// A model request that gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault:?}: {message}")]
pub struct ModelError {
    pub fault: ModelFault,
    /// For the log; may hold the provider's words, cut to 512 bytes, keys redacted.
    pub message: String,
    pub retry_after: Option<Duration>,
    /// Text that had been received before the fault.
    pub received: String,
}

impl ModelError {
    /// An error of this fault.
    pub fn new(fault: ModelFault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into(), retry_after: None, received: String::new() }
    }

    /// 4xx but 408 and 429 is sent once; everything else may pass.
    pub const fn is_retryable(&self) -> bool {
        match self.fault {
            ModelFault::Refused { status } => matches!(status, 408 | 429) || status >= 500,
            ModelFault::Connect | ModelFault::FirstByte | ModelFault::Idle | ModelFault::Incomplete | ModelFault::Protocol => true,
        }
    }

    /// Whether a request may have reached the provider, and so may have cost something.
    pub const fn was_sent(&self) -> bool {
        !matches!(self.fault, ModelFault::Connect)
    }
}
