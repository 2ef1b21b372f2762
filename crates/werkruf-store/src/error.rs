//! How remembering fails.

/// What a store says when it cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else owns the conversation now: stop, write nothing more.
    #[error("fenced: the lease of this conversation has moved on")]
    Fenced,
    /// The database cannot be reached; may be tried again.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    /// The disk takes no more bytes: no space, a quota or a limit. May be tried again once there is room; what is stored can be read.
    #[error("the disk has no room: {0}")]
    Full(String),
    /// Another process holds the file.
    #[error("another werkruf holds {0}")]
    InUse(String),
    /// A turn is running in the conversation.
    #[error("a turn is running in this conversation")]
    Busy,
    /// The row is not in the state the write expects.
    #[error("{what} {id} is not where this write expects it")]
    Moved { what: &'static str, id: String },
    /// What is stored cannot be read, or the SQL is wrong: a defect, never the caller's fault.
    #[error("stored data cannot be used: {0}")]
    Broken(String),
    /// The schema is newer than this binary.
    #[error("the database has schema {found}, this binary knows up to {known}; use a newer werkruf")]
    TooNew { found: i64, known: i64 },
    /// An unreleased build made the database. Its schema is not a start for the numbered migrations of this binary.
    #[error(
        "{0} was made by a build of werkruf before its first release, and this binary cannot upgrade it; \
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
}
