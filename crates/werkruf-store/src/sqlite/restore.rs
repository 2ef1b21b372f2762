//! A backup becomes the database. Everything is done on a copy beside it; the last step is a rename.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Clock;

use super::backup::{at, claim, sync_folder, verify};
use super::migrate::{self, PARTS, beside};
use super::text::Stamp;
use super::{SqliteStore, erase, erased_list, hold, open};
use crate::{HeldWork, MaintenanceError, Restored, StoreError, crash};

impl SqliteStore {
    /// Puts a backup in the place of `database`, with nothing pending in it. Refused while a process holds the database;
    /// one that is there is replaced only with `force`, and kept beside.
    pub fn restore(backup: &Path, database: &Path, force: bool, clock: &Clock) -> Result<Restored, MaintenanceError> {
        let _lock = open::lock(database)?;
        let there = database.try_exists().map_err(at(database))?;
        if there && !force {
            return Err(MaintenanceError::Exists(database.to_owned()));
        }
        let part = beside(database, ".restoring");
        sweep(&part)?;
        let made = fill(backup, &part, database, clock).and_then(|filled| {
            crash::point("restore_filled");
            let kept = if there { Some(set_aside(database, clock.now())?) } else { None };
            crash::point("restore_set_aside");
            remove(&beside(database, "-wal"))?;
            remove(&beside(database, "-shm"))?;
            fs::rename(&part, database).map_err(at(database))?;
            crash::point("restore_named");
            sync_folder(database)?;
            Ok(Restored { database: database.to_owned(), kept, ..filled })
        });
        sweep(&part)?;
        made
    }
}

/// Copies, checks, brings the schema up to date, holds what is pending, erases again who was erased since.
fn fill(backup: &Path, part: &Path, database: &Path, clock: &Clock) -> Result<Restored, MaintenanceError> {
    let now = clock.now();
    let mut source = fs::File::open(backup).map_err(at(backup))?;
    let mut file = claim(part)?;
    std::io::copy(&mut source, &mut file).map_err(at(part))?;
    drop(file);
    let (schema, rows) = verify(part).map_err(|error| name(error, backup))?;
    let connection = open::writable(part).map_err(MaintenanceError::from)?;
    migrate::migrate(&connection, part, PARTS, now).map_err(|error| unfit(error, backup))?;
    let held = hold(&connection, clock, now)?;
    let erased_again = erase_again(&connection, database, clock, now)?;
    connection.close().map_err(|(_, error)| StoreError::from(error))?;
    fs::File::open(part).and_then(|file| file.sync_all()).map_err(at(part))?;
    Ok(Restored { database: part.to_owned(), schema, rows, held, erased_again, kept: None })
}

/// A fault of the copy is a fault of the file the operator named.
fn name(error: MaintenanceError, backup: &Path) -> MaintenanceError {
    match error {
        MaintenanceError::Unfit { why, .. } => MaintenanceError::Unfit { path: backup.to_owned(), why },
        MaintenanceError::Store(StoreError::Prerelease(_)) => StoreError::Prerelease(backup.display().to_string()).into(),
        other => other,
    }
}

fn unfit(error: StoreError, backup: &Path) -> MaintenanceError {
    match error {
        StoreError::Broken(why) => MaintenanceError::Unfit { path: backup.to_owned(), why },
        StoreError::TooNew { .. } => MaintenanceError::Unfit { path: backup.to_owned(), why: error.to_string() },
        other => other.into(),
    }
}

fn hold(connection: &Connection, clock: &Clock, now: Timestamp) -> Result<HeldWork, StoreError> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    let held = hold::hold_all(&transaction, clock, now)?;
    transaction.execute(
        "INSERT INTO settings (name, value) VALUES ('restored_at', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        params![Stamp::from(now)],
    )?;
    transaction.commit()?;
    Ok(held)
}

/// Who was erased after the backup was made is in it still; the list beside the database remembers them.
fn erase_again(connection: &Connection, database: &Path, clock: &Clock, now: Timestamp) -> Result<u64, MaintenanceError> {
    let mut again = 0;
    for line in erased_list::read(database)? {
        if erase::is_erased(connection, &line)? {
            continue;
        }
        let transaction =
            rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate).map_err(StoreError::from)?;
        if erase::erase(&transaction, line.tenant_id, &line.user_id, true, clock, now)?.is_some() {
            again += 1;
        }
        // The list and the database agree again on when it was.
        erase::mark(&transaction, &line)?;
        transaction.commit().map_err(StoreError::from)?;
    }
    if again > 0 {
        erase::compact(connection)?;
    }
    Ok(again)
}

/// Gives the old database a second name, its WAL folded in; one too broken for that takes its WAL along. The first name stays
/// until the new database takes it: a start in between must not find nothing and begin anew.
fn set_aside(database: &Path, now: Timestamp) -> Result<PathBuf, MaintenanceError> {
    let kept = beside(database, &format!(".before-restore-{}", now.strftime("%Y%m%dT%H%M%S%.3fZ")));
    let folded = open::writable(database).and_then(|old| erase::fold(&old));
    if fs::hard_link(database, &kept).is_err() {
        // Not every file system can do that.
        fs::rename(database, &kept).map_err(at(database))?;
    }
    if !matches!(folded, Ok(true)) {
        tracing::warn!(database = %database.display(), "the old database could not be folded; its WAL is kept beside it");
        if let Err(error) = fs::rename(beside(database, "-wal"), beside(&kept, "-wal"))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(at(database)(error));
        }
    }
    Ok(kept)
}

/// What is left of the working copy, of this run or of one that was cut off.
fn sweep(part: &Path) -> Result<(), MaintenanceError> {
    let known = migrate::schema_number(PARTS);
    for suffix in ["", "-wal", "-shm", "-journal"] {
        remove(&beside(part, suffix))?;
    }
    // The backup itself is the copy from before the migration.
    remove(&beside(part, &format!(".before-{known}")))
}

fn remove(path: &Path) -> Result<(), MaintenanceError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
