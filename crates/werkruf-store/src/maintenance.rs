//! Maintenance and letting go: backups, restores, and the erasure of a person's data.
//!
//! Invariants: half a file never bears its final name; a restored database sends nothing by itself; an erasure
//! is written to a list beside the database, so that a later restore repeats it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;
use werkruf_contract::{BoxFuture, Clock, Uuid};

use crate::StoreError;

/// What keeping answers.
pub type MaintenanceFuture<'a, T> = BoxFuture<'a, Result<T, MaintenanceError>>;

/// Backups and erasure, beside everything else that goes on.
pub trait Maintenance: Send + Sync {
    /// What this process has written since it opened the database.
    fn counts(&self) -> Counts;
    /// Writes a consistent, verified copy while turns go on; `force` replaces an older backup.
    fn back_up(&self, target: PathBuf, force: bool) -> MaintenanceFuture<'_, Backup>;
    /// Removes a person's content for good; `None` when nobody is known by this id. [`StoreError::Busy`] while a turn of
    /// theirs has not ended; with `cancel`, turns nobody works on are ended here and only the others are in the way.
    fn erase_person(&self, tenant_id: Uuid, user_id: String, cancel: bool, clock: Clock) -> MaintenanceFuture<'_, Option<Erased>>;
    /// Turns of this person, or in their conversations, that have not ended.
    fn unfinished_turns_of(&self, tenant_id: Uuid, user_id: String) -> MaintenanceFuture<'_, Vec<Uuid>>;
}

/// What has been written since the database was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Jobs whose rows are durable.
    pub commits: u64,
    /// Transactions these jobs shared.
    pub groups: u64,
    /// Rows inserted, updated or deleted, as the database counts them. 0 on PostgreSQL: its functions write most rows, and tell nobody
    /// how many without another question in every turn.
    pub row_writes: u64,
}

/// A backup that was written and read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Backup {
    pub path: PathBuf,
    pub bytes: u64,
    /// Number of the last migration in it.
    pub schema: i64,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub database: PathBuf,
    /// Number of the last migration in the backup.
    pub schema: i64,
    /// Rows by table, as the backup had them.
    pub rows: BTreeMap<String, u64>,
    pub held: HeldWork,
    /// People erased after the backup was made, erased again.
    pub erased_again: u64,
    /// Where the database that was there before is now.
    pub kept: Option<PathBuf>,
}

/// What was pending and is not sent without the operator's word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HeldWork {
    /// Turns that had not ended and are failed now, with code `restored`.
    pub turns: u64,
    /// Calls that had not ended; those with effect `once` are `outcome_unknown` now.
    pub calls: u64,
    pub approvals: u64,
    pub outbox: u64,
}

/// What an erasure did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Erased {
    pub tenant_id: Uuid,
    pub user_id: String,
    pub erased_at: Timestamp,
    pub conversations: u64,
    pub messages: u64,
    pub turns: u64,
    pub calls: u64,
    pub keys: u64,
    /// Whether the files hold no trace any more; where a reader was in the way, erase again.
    pub compacted: bool,
    /// Copies beside the database that may still hold the person's data.
    pub copies: Vec<PathBuf>,
}

/// Why nothing was kept, restored or erased.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The operator must say that it may be replaced.
    #[error("{} is there already; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// The file is no backup this binary can use, or would be no place for one.
    #[error("{}: {why}", path.display())]
    Unfit { path: PathBuf, why: String },
    /// The disk said no.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// Everything is moved into an empty database or not at all.
    #[error("the target holds rows in {0} already; name an empty database, or another WERKRUF_DATABASE_SCHEMA")]
    NotEmpty(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MaintenanceError {
    /// Stable, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Exists(_) => "file_exists",
            Self::NotEmpty(_) => "database_not_empty",
            Self::Unfit { .. } | Self::Store(StoreError::TooNew { .. }) => "backup_invalid",
            Self::File { .. } => "file_unusable",
            Self::Store(StoreError::Prerelease(_)) => "schema_prerelease",
            Self::Store(StoreError::InUse(_)) => "database_in_use",
            Self::Store(StoreError::Full(_)) => "storage_full",
            Self::Store(StoreError::Busy) => "turn_running",
            Self::Store(StoreError::Broken(_)) => "internal",
            Self::Store(StoreError::Fenced | StoreError::Unavailable(_) | StoreError::Moved { .. }) => "database_unavailable",
        }
    }
}
