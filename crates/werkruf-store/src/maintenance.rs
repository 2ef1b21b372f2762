//! Maintenance: backups, restores, and the erasure of a person's data.
//!
//! Invariants: an incomplete file never has its final name; a restored database sends nothing by itself; an erasure
//! is written to a list beside the database, so that a later restore repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use werkruf_contract::{BoxFuture, Uuid};

use crate::audit::ERASE;
use crate::{Act, Author, ConnectionRow, StoreError, TurnCloser};

/// The return type of every maintenance method.
pub type MaintenanceFuture<'a, T> = BoxFuture<'a, Result<T, MaintenanceError>>;

/// Backups and erasure, while turns run.
pub trait Maintenance: Send + Sync {
    /// Writes a consistent, verified copy while turns run; `force` replaces an older backup.
    fn back_up(&self, target: PathBuf, force: bool) -> MaintenanceFuture<'_, Backup>;
    /// Removes a user's content for good; `None` when no user has this id. [`StoreError::Busy`] while a turn of the user has
    /// not ended; with `cancel`, turns that no process runs are ended with the closer, and only running turns are refused.
    fn erase_person(
        &self,
        tenant_id: Uuid,
        user_id: String,
        cancel: bool,
        closer: Arc<dyn TurnCloser>,
        by: Author,
        now: Timestamp,
    ) -> MaintenanceFuture<'_, Option<Erased>>;
    /// Turns of this user, or in the user's conversations, that have not ended.
    fn unfinished_turns_of(&self, tenant_id: Uuid, user_id: String) -> MaintenanceFuture<'_, Vec<Uuid>>;
}

/// What has been written since the database was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Jobs whose rows are durable.
    pub commits: u64,
    /// Transactions that these jobs shared.
    pub groups: u64,
    /// Rows inserted, updated or deleted, as the database counts them. 0 on PostgreSQL: its functions write most rows, and the
    /// number would cost another query in every turn.
    pub row_writes: u64,
}

/// A backup that was written and read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Backup {
    pub path: PathBuf,
    pub bytes: u64,
    /// The schema number: how many migrations it has.
    pub schema: i64,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub database: PathBuf,
    /// The schema number of the backup: how many migrations it has.
    pub schema: i64,
    /// Rows by table, as the backup had them.
    pub rows: BTreeMap<String, u64>,
    pub held: HeldWork,
    /// People who were erased after the backup was made, and again now.
    pub erased_again: u64,
    /// The path that the previous database has now.
    pub kept: Option<PathBuf>,
    /// Names of keys that signed the audit log of the backup and are not there. What they signed cannot be checked, and what they
    /// encrypted cannot be read.
    pub missing_keys: BTreeSet<String>,
}

/// Work that was pending and is not resumed unless the operator starts it again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HeldWork {
    /// Turns that had not ended and are failed now, with code `restored`.
    pub turns: u64,
    /// Calls that had not ended; those with effect `once` are `outcome_unknown` now.
    pub calls: u64,
    pub approvals: u64,
    /// Rows of the outbox that were not sent yet, or whose sending had not ended. The operator releases them.
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
    /// Whether the files were rewritten without the erased content. False when another program was reading them: erase again.
    pub compacted: bool,
    /// Copies beside the database that may still hold the person's data.
    pub copies: Vec<PathBuf>,
    /// The connections with other servers that were deleted: these servers still know the tokens.
    #[serde(skip)]
    pub connections: Vec<ConnectionRow>,
}

impl Erased {
    /// The entry of the audit log, which names the entries that the erasure blanked.
    pub(crate) fn act(&self, blanked: &[i64]) -> Act {
        let Self { conversations, messages, turns, calls, keys, .. } = self;
        Act::new(ERASE, self.user_id.clone()).after(
            json!({"conversations": conversations, "messages": messages, "turns": turns, "calls": calls, "keys": keys, "blanked": blanked}),
        )
    }
}

/// Why a backup, a restore or an erasure failed.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The file exists, and the operator did not allow its replacement.
    #[error("{} is there already; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// The file is not a backup this binary can use, or cannot be the target of one.
    #[error("{}: {why}", path.display())]
    Unfit { path: PathBuf, why: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The target of a move must be empty.
    #[error("the target holds rows in {0} already; name an empty database, or another WERKRUF_DATABASE_SCHEMA")]
    NotEmpty(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MaintenanceError {
    /// The stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Exists(_) => "file_exists",
            Self::NotEmpty(_) => "database_not_empty",
            Self::Unfit { .. } | Self::Store(StoreError::TooNew { .. } | StoreError::Foreign(_)) => "backup_invalid",
            Self::File { .. } => "file_unusable",
            Self::Store(StoreError::Prerelease(_)) => "schema_prerelease",
            Self::Store(StoreError::InUse(_)) => "database_in_use",
            Self::Store(StoreError::Full(_)) => "storage_full",
            Self::Store(StoreError::Replaced(_)) => "database_replaced",
            Self::Store(StoreError::Busy) => "turn_running",
            Self::Store(StoreError::Broken(_) | StoreError::StateTooLarge) => "internal",
            Self::Store(StoreError::Fenced | StoreError::Unavailable(_) | StoreError::Moved { .. }) => "database_unavailable",
        }
    }
}
