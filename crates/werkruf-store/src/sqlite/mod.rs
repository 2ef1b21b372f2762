//! SQLite: one writer thread with group commit, a pool of readers.

/// The embedded database.
pub struct SqliteStore {}
