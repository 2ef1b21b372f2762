//! SQLite: one writer thread with group commit, a pool of readers.
//!
//! One process owns the file: it holds a lock on `<db>.lock-held` and on the file itself as long as it runs, so its leases never expire, and
//! the leases of an earlier process are void at the next start. Other programs can always read the file (`mode=ro`).

mod alerts;
mod approvals;
mod audit;
mod backup;
mod budget_counters;
mod budgets;
mod client_conversations;
mod client_requests;
mod cluster;
mod connections;
mod console;
mod diagnosis;
mod erase;
mod erased_list;
mod export;
mod files;
mod history;
mod hold;
mod identity;
mod import;
mod insert;
mod installation;
mod keys;
mod legacy;
mod manage_people;
mod migrate;
mod open;
mod operator_database;
mod outbox;
mod outbox_claim;
mod outbox_rows;
mod people;
mod people_write;
mod principal_cache;
mod provider_tokens;
mod readers;
mod records;
mod restore;
mod retention;
mod retention_messages;
mod row;
mod streams;
mod takeover;
mod text;
mod tool_pins;
mod turn_open;
mod turn_write;
mod turns;
mod usage;
mod usage_statistics;
mod waiting;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, ffi};
use werkruf_contract::Clock;

use crate::{Modules, Recorder, SecretKeys, StoreError};
pub use audit::record;
pub(crate) use export::{Batch, Export};
use files::Lock;
pub(crate) use legacy::read as read_legacy;
pub use operator_database::OperatorSqlite;
use principal_cache::PrincipalCache;
use readers::Readers;
pub use row::{Columns, all, first};
pub use text::{Id, Stamp, id_or_null, stamp_or_null};
use writer::Writer;

/// The embedded database. Dropping the last handle finishes the queued writes and closes the file.
pub struct SqliteStore {
    // Dropped in this order: the writer closes after the readers, so that its connection can checkpoint and remove the WAL.
    readers: Readers,
    writer: Writer,
    cache: PrincipalCache,
    /// Decides whether roles from a token still count.
    clock: Clock,
    path: PathBuf,
    modules: Modules,
    recorder: Recorder,
    /// Held as long as the store is open. The last field: it must be dropped after the connections.
    _lock: Lock,
}

impl SqliteStore {
    /// Opens or creates the database, applies missing migrations and voids the leases of earlier processes.
    pub fn open(path: impl AsRef<Path>, clock: &Clock, modules: Modules) -> Result<Arc<Self>, StoreError> {
        let path = path.as_ref();
        let lock = Lock::take(path, true)?;
        let parts = migrate::parts(modules);
        if !migrate::beside(path, "-wal").exists() {
            // Opening it for writing changes the file, also one that is refused then. A file with a WAL was opened so before.
            migrate::report(path, &parts)?;
        }
        let connection = open::writable(path)?;
        migrate::migrate(&connection, path, &parts, clock.now())?;
        open::void_old_leases(&connection)?;
        let readers = (0..readers::READERS).map(|_| open::read_only(path)).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            readers: Readers::new(readers),
            writer: Writer::start(connection)?,
            cache: PrincipalCache::default(),
            clock: clock.clone(),
            path: path.to_owned(),
            modules,
            recorder: Recorder::new(SecretKeys::default(), clock),
            _lock: lock,
        }))
    }

    /// Compares the schema of a file with this binary's; changes nothing.
    pub fn schema_report(path: &Path, modules: Modules) -> Result<crate::SchemaReport, StoreError> {
        migrate::report(path, &migrate::parts(modules))
    }

    /// Looks up a few rows by index, on the caller's thread.
    pub async fn look_up<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send) -> Result<T, StoreError> {
        self.readers.look_up(read).await
    }

    /// Runs a read that may take a while, on a blocking thread.
    pub async fn read_rows<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.readers.list(read).await
    }

    /// Runs a write inside the next commit, and resolves when it is durable. A write that fails leaves no row.
    pub async fn write_rows<T, F>(&self, write: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer.submit(write).await
    }

    /// Copies the WAL into the file and empties it, so that deleted text is in no file any more. False when a reader prevents it; the writer
    /// waits for readers only for a moment.
    pub async fn empty_wal(&self) -> Result<bool, StoreError> {
        self.writer.submit_alone(erase::brief_checkpoint).await
    }

    /// The clock of the process.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The path of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        // SQLite reports "full" only for ENOSPC; a quota or a file size limit is reported as a failed write.
        let refused =
            error.sqlite_error().is_some_and(|cause| [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE].contains(&cause.extended_code));
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(error.to_string()),
            Some(ErrorCode::SystemIoFailure) if refused => Self::Full(error.to_string()),
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly,
            ) => Self::Unavailable(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;
