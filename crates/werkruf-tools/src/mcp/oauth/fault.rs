//! Why a connection cannot be made or used.

use werkruf_store::StoreError;

/// Who can do something about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The person must connect, or connect again.
    NeedsConnection,
    /// The link or the answer is not, or no longer, one that this server waits for.
    Gone,
    /// Somebody is opening the link at this moment.
    Busy,
    /// The person did not agree at the other server.
    Declined,
    /// The other server cannot be used: it does not answer, or against the rules.
    Refused,
    /// This installation lacks something, such as the key for secrets.
    Installation,
    /// The database did not answer.
    Store,
}

/// Why a connection cannot be made or used. The message has no secret, and may contain words of the other server, shortened.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ConnectFault {
    pub kind: FaultKind,
    pub message: String,
    /// The rights that the other server asks for.
    pub scope: Option<String>,
}

impl ConnectFault {
    pub(super) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), scope: None }
    }

    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Refused, message)
    }

    pub(crate) fn needs_connection(message: impl Into<String>) -> Self {
        Self::new(FaultKind::NeedsConnection, message)
    }

    /// The same, where the server names rights that the token lacks.
    #[must_use]
    pub(crate) fn for_scope(self, scope: Option<String>) -> Self {
        Self { scope, ..self }
    }
}

impl From<StoreError> for ConnectFault {
    fn from(error: StoreError) -> Self {
        Self::new(FaultKind::Store, error.to_string())
    }
}
