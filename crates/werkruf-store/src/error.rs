//! Errors of the store.

use werkruf_contract::{Failure, ToolErrorType};

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another owner has the lease of the conversation now: the caller must stop and write nothing more.
    #[error("fenced: the lease of this conversation has another owner")]
    Fenced,
    /// The database cannot be reached; a retry may succeed.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    /// The disk is full: no space, a quota or a limit. A retry may succeed once there is space; stored rows can still be read.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The database file or its WAL was removed or replaced while it was open: what is written would be lost. Only a restart helps.
    #[error("{0} was removed or replaced while the server runs")]
    Replaced(String),
    /// Another process has the file open.
    #[error("another werkruf holds {0}")]
    InUse(String),
    /// A turn is running in the conversation.
    #[error("a turn is running in this conversation")]
    Busy,
    /// A patch would make the session state larger than allowed.
    #[error("the session state would be too large")]
    StateTooLarge,
    /// The row is not in the state the write expects.
    #[error("{what} {id} is not in the state this write expects")]
    Moved { what: &'static str, id: String },
    /// Stored data cannot be read, or the SQL is wrong: a defect, never the caller's fault.
    #[error("stored data cannot be used: {0}")]
    Broken(String),
    /// The database belongs to another program. Nothing was changed.
    #[error("{0}")]
    Foreign(String),
    /// The schema is newer than this binary, or has a module that this binary was built without.
    #[error(
        "the database has migration {part}/{found}, this binary knows up to {part}/{known}; \
         use a newer werkruf, or one that is built with this module"
    )]
    TooNew { part: String, found: i64, known: i64 },
    /// An unreleased build made the database. Its schema is not a start for the numbered migrations of this binary.
    #[error(
        "an unreleased build created {0}, and this version cannot upgrade it; \
         export with that build (werkruf conversations export) and import with this one into a new database \
         (werkruf conversations import)"
    )]
    Prerelease(String),
}

impl StoreError {
    /// Whether the same operation may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Full(_) | Self::Busy)
    }

    /// The failure of a tool call that could not read, with this message. A read has no effect, so nothing happened.
    pub fn read_failure(&self, message: &'static str) -> Failure {
        let failure = match self {
            Self::Unavailable(_) | Self::Full(_) => Failure::new(ToolErrorType::Retryable, "database_unavailable", message),
            _ => Failure::fatal("internal", message),
        };
        failure.nothing_happened().because(self.to_string())
    }
}
