//! Restores a backup. All work is done on a copy beside the database; the last step is a rename.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::json;
use werkruf_contract::Clock;

use super::backup::{at, claim, sync_folder, verify};
use super::files::Lock;
use super::migrate::{self, beside};
use super::text::Stamp;
use super::{SqliteStore, audit, erase, erased_list, hold, open};
use crate::{
    Act, Author, HeldWork, MaintenanceError, Modules, Recorder, Restored, SERVER_CHAIN, SecretKeys, StoreError, TurnCloser, crash,
};

impl SqliteStore {
    /// Replaces `database` by a backup in which all pending work is ended with the closer. Refused while a process has the database open.
    /// An existing database is replaced only with `force`, and is kept under another name.
    pub fn restore(
        backup: &Path,
        database: &Path,
        force: bool,
        closer: &dyn TurnCloser,
        clock: &Clock,
        modules: Modules,
        keys: &SecretKeys,
    ) -> Result<Restored, MaintenanceError> {
        let _lock = Lock::take(database, false)?;
        let exists = database.try_exists().map_err(at(database))?;
        if exists && !force {
            return Err(MaintenanceError::Exists(database.to_owned()));
        }
        let part = beside(database, ".restoring");
        remove_part(&part, modules)?;
        let recorder = Recorder::new(keys.clone(), clock);
        let made = Filling { backup, part: &part, database, closer, now: clock.now(), modules, recorder }.fill().and_then(|filled| {
            crash::point("restore_filled");
            let kept = if exists { Some(set_aside(database, clock.now())?) } else { None };
            crash::point("restore_set_aside");
            remove(&beside(database, "-wal"))?;
            remove(&beside(database, "-shm"))?;
            fs::rename(&part, database).map_err(at(database))?;
            crash::point("restore_named");
            sync_folder(database)?;
            Ok(Restored { database: database.to_owned(), kept, ..filled })
        });
        remove_part(&part, modules)?;
        made
    }
}

/// The making of the working copy.
struct Filling<'a> {
    backup: &'a Path,
    part: &'a Path,
    database: &'a Path,
    closer: &'a dyn TurnCloser,
    now: Timestamp,
    modules: Modules,
    recorder: Recorder,
}

impl Filling<'_> {
    /// Copies and verifies the backup, applies migrations, ends pending work, and repeats later erasures.
    fn fill(&self) -> Result<Restored, MaintenanceError> {
        let &Self { backup, part, closer, now, modules, .. } = self;
        let mut source = fs::File::open(backup).map_err(at(backup))?;
        let mut file = claim(part)?;
        std::io::copy(&mut source, &mut file).map_err(at(part))?;
        drop(file);
        let (schema, rows) = verify(part).map_err(|error| with_backup_path(error, backup))?;
        let connection = open::writable(part).map_err(MaintenanceError::from)?;
        migrate::migrate(&connection, part, &migrate::parts(modules), now).map_err(|error| unfit(error, backup))?;
        let missing_keys = audit::missing_keys(&connection, &self.recorder.keys)?;
        let held = hold(&connection, closer, now)?;
        let erased_again = self.erase_again(&connection)?;
        let act = Act::new("database.restore", backup.display().to_string()).after(json!({"schema": schema, "erased_again": erased_again}));
        audit::record(&connection, &self.recorder, SERVER_CHAIN, &Author::operator(), &[act], now)?;
        connection.close().map_err(|(_, error)| StoreError::from(error))?;
        fs::File::open(part).and_then(|file| file.sync_all()).map_err(at(part))?;
        Ok(Restored { database: part.to_owned(), schema, rows, held, erased_again, kept: None, missing_keys })
    }

    /// Erases the people again who were erased after the backup was made; they are in the list beside the database.
    fn erase_again(&self, connection: &Connection) -> Result<u64, MaintenanceError> {
        let mut again = 0;
        for line in erased_list::read(self.database)? {
            if erase::is_erased(connection, &line)? {
                continue;
            }
            let transaction =
                rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate).map_err(StoreError::from)?;
            let person = erase::Person { tenant_id: line.tenant_id, user_id: &line.user_id };
            if let Some(erased) = erase::erase(&transaction, &person, true, self.closer, self.modules, self.now)? {
                erase::record_erasure(&transaction, &self.recorder, &erased, &Author::server())?;
                again += 1;
            }
            // Then the database has the same time of erasure as the list.
            erase::mark(&transaction, &line)?;
            transaction.commit().map_err(StoreError::from)?;
        }
        if again > 0 {
            erase::compact(connection)?;
        }
        Ok(again)
    }
}

/// Names the operator's file in an error about the copy.
fn with_backup_path(error: MaintenanceError, backup: &Path) -> MaintenanceError {
    match error {
        MaintenanceError::Unfit { why, .. } => MaintenanceError::Unfit { path: backup.to_owned(), why },
        MaintenanceError::Store(error @ StoreError::Prerelease(_)) => unfit(error, backup),
        other => other,
    }
}

/// The error of a backup that this binary does not restore. It names the backup, because the copy is removed.
fn unfit(error: StoreError, backup: &Path) -> MaintenanceError {
    match error {
        StoreError::Broken(why) | StoreError::Foreign(why) => MaintenanceError::Unfit { path: backup.to_owned(), why },
        StoreError::TooNew { .. } => MaintenanceError::Unfit { path: backup.to_owned(), why: error.to_string() },
        StoreError::Prerelease(_) => StoreError::Prerelease(backup.display().to_string()).into(),
        other => other.into(),
    }
}

fn hold(connection: &Connection, closer: &dyn TurnCloser, now: Timestamp) -> Result<HeldWork, StoreError> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    let held = hold::hold_all(&transaction, closer, now)?;
    transaction.execute(
        "INSERT INTO settings (name, value) VALUES ('restored_at', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        params![Stamp::from(now)],
    )?;
    transaction.commit()?;
    Ok(held)
}

/// Gives the old database a second name, after a checkpoint of its WAL; where the checkpoint fails, the WAL is renamed too. The first
/// name stays until the new database takes it, because a start in between must not create an empty database.
fn set_aside(database: &Path, now: Timestamp) -> Result<PathBuf, MaintenanceError> {
    let kept = beside(database, &format!(".before-restore-{}", now.strftime("%Y%m%dT%H%M%S%.3fZ")));
    let checkpointed = open::writable(database).and_then(|old| erase::checkpoint(&old));
    if fs::hard_link(database, &kept).is_err() {
        // Not every file system supports hard links.
        fs::rename(database, &kept).map_err(at(database))?;
    }
    if !matches!(checkpointed, Ok(true)) {
        tracing::warn!(database = %database.display(), "the WAL of the old database could not be checkpointed and is kept beside it");
        if let Err(error) = fs::rename(beside(database, "-wal"), beside(&kept, "-wal"))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(at(database)(error));
        }
    }
    Ok(kept)
}

/// Removes the working copy of this run, or of an earlier run that was interrupted.
fn remove_part(part: &Path, modules: Modules) -> Result<(), MaintenanceError> {
    let known = migrate::schema_number(&migrate::parts(modules));
    for suffix in ["", "-wal", "-shm", "-journal"] {
        remove(&beside(part, suffix))?;
    }
    // The backup itself serves as the copy before the migration.
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
