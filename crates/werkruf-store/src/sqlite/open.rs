//! Opens the database file: the settings of a connection, and the leases of earlier processes.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::takeover::ABANDONED;
use crate::StoreError;

/// Older versions can lose committed data when a checkpoint meets a WAL reset.
const OLDEST_SQLITE: i32 = 3_051_003;

/// The writer's connection.
#[expect(clippy::disallowed_methods, reason = "this is where the database is opened")]
pub(super) fn writable(path: &Path) -> Result<Connection, StoreError> {
    check_version(rusqlite::version_number())?;
    // SQLite gives the WAL and its index the mode of the database.
    let made = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    made.map_err(|error| StoreError::Unavailable(format!("{}: {error}", path.display())))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::Unavailable(format!("the file system of {} does not support a WAL ({mode})", path.display())));
    }
    // temp_store keeps the savepoints' undo pages out of temporary files; a checkpoint runs at 16 MiB of WAL.
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA secure_delete = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -4096;
         PRAGMA wal_autocheckpoint = 4000;
         PRAGMA journal_size_limit = 67108864;",
    )?;
    plan_once(&connection)?;
    Ok(connection)
}

/// One connection of the read pool.
#[expect(clippy::disallowed_methods, reason = "this is where the database is opened")]
pub(super) fn read_only(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -1024;")?;
    plan_once(&connection)?;
    Ok(connection)
}

/// A look at a file that perhaps no process has open. Without a WAL the file is read as it is: SQLite would make a WAL and its index otherwise.
#[expect(clippy::disallowed_methods, reason = "this is where the database is opened")]
pub(super) fn unchanged(path: &Path) -> Result<Connection, StoreError> {
    if super::migrate::beside(path, "-wal").exists() {
        return read_only(path);
    }
    // These characters have a meaning in an address of a file.
    let name = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?)
}

/// Caches statements, and makes their plans independent of the bound values. Otherwise each reuse of a cached statement, whose bindings
/// were cleared, would plan it again.
fn plan_once(connection: &Connection) -> Result<(), StoreError> {
    connection.set_prepared_statement_cache_capacity(128);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn check_version(found: i32) -> Result<(), StoreError> {
    if found < OLDEST_SQLITE {
        return Err(StoreError::Broken(format!("SQLite {found} can lose committed data; {OLDEST_SQLITE} is the oldest that may be used")));
    }
    Ok(())
}

/// Voids the leases of earlier processes at the start of this one. Only unfinished turns can have a lease.
pub(super) fn void_old_leases(connection: &Connection) -> Result<(), StoreError> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute(
        "INSERT INTO settings (name, value) VALUES ('boot_epoch', '1')
         ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1",
        [],
    )?;
    // A turn whose process died while it held the lease counts as taken over. A released turn does not, and neither does a turn that
    // waited in the queue or for an approval while another turn had the lease.
    transaction.execute(
        "UPDATE turns SET takeovers = takeovers + 1, stalled = stalled + 1 WHERE finished_at IS NULL AND status NOT IN ('accepted', 'awaiting_approval') AND
           EXISTS (SELECT 1 FROM leases WHERE leases.tenant_id = turns.tenant_id AND owner <> ?1
                     AND leases.conversation_id = coalesce(turns.conversation_id, turns.id))",
        [ABANDONED],
    )?;
    let voided = transaction.execute(
        "UPDATE leases SET owner = ?1 WHERE owner <> ?1 AND (tenant_id, conversation_id) IN
           (SELECT tenant_id, coalesce(conversation_id, id) FROM turns INDEXED BY turns_open WHERE finished_at IS NULL)",
        [ABANDONED],
    )?;
    transaction.commit()?;
    if voided > 0 {
        tracing::info!(voided, "leases of an earlier process are void");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_version;

    #[test]
    fn an_sqlite_that_can_lose_commits_is_refused() {
        assert!(check_version(3_051_002).is_err());
        assert!(check_version(3_051_003).is_ok());
        assert!(check_version(rusqlite::version_number()).is_ok());
    }
}
