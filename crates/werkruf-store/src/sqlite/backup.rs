//! Backups: a copy of one snapshot, made while writes continue, and verified before it gets its name.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::migrate::{self, beside};
use super::open;
use super::row::all;
use crate::{Backup, MaintenanceError, StoreError, crash};

/// The first bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Tables whose rows are never deleted while a server runs: the row count of a copy lies between the counts before and after.
const ONLY_GROWING: [&str; 4] = ["schema_migrations", "tenants", "audit_entries", "audit_heads"];

pub(super) type Rows = BTreeMap<String, u64>;

/// Copies `database` to `target`.
pub(super) fn back_up(database: &Path, target: &Path, force: bool) -> Result<Backup, MaintenanceError> {
    check_target(database, target, force)?;
    let part = beside(target, ".part");
    let file = claim(&part)?;
    let made = copy(database, &part).and_then(|(schema, rows)| {
        file.sync_all().map_err(at(&part))?;
        crash::point("backup_copied");
        // Another process may have created the file meanwhile.
        check_target(database, target, force)?;
        fs::rename(&part, target).map_err(at(target))?;
        crash::point("backup_named");
        sync_folder(target)?;
        let bytes = fs::metadata(target).map_err(at(target))?.len();
        Ok(Backup { path: target.to_owned(), bytes, schema, rows })
    });
    if made.is_err() {
        let _ = fs::remove_file(&part);
    }
    made
}

/// The target must be a new file or an older backup, never the database itself or a file of another kind.
fn check_target(database: &Path, target: &Path, force: bool) -> Result<(), MaintenanceError> {
    let unfit = |why: &str| MaintenanceError::Unfit { path: target.to_owned(), why: why.to_owned() };
    if !target.is_absolute() || target.to_str().is_none() {
        return Err(unfit("a backup needs an absolute path in UTF-8"));
    }
    if fs::symlink_metadata(target).is_err() {
        return Ok(());
    }
    let same = match (fs::canonicalize(target), fs::canonicalize(database)) {
        (Ok(target), Ok(database)) => target == database,
        _ => false,
    };
    if same {
        return Err(unfit("this is the database itself"));
    }
    if !force {
        return Err(MaintenanceError::Exists(target.to_owned()));
    }
    if is_sqlite(target) { Ok(()) } else { Err(unfit("this file is not a backup, so it is not replaced")) }
}

pub(super) fn is_sqlite(path: &Path) -> bool {
    let mut start = [0; 16];
    fs::metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && &start == MAGIC
}

/// Creates an empty file with mode 0600 and locks it, so that two backups never write the same file.
pub(super) fn claim(part: &Path) -> Result<File, MaintenanceError> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(part).map_err(at(part))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(MaintenanceError::Exists(part.to_owned())),
        Err(TryLockError::Error(error)) => return Err(at(part)(error)),
    }
    file.set_len(0).and_then(|()| file.set_permissions(fs::Permissions::from_mode(0o600))).map_err(at(part))?;
    Ok(file)
}

fn copy(database: &Path, part: &Path) -> Result<(i64, Rows), MaintenanceError> {
    let source = open::read_only(database)?;
    source.execute_batch("PRAGMA query_only = OFF").map_err(StoreError::from)?;
    // The version is read first, so that a commit between the two reads counts as a concurrent write.
    let version = data_version(&source)?;
    let before = count(&source)?;
    source.execute("VACUUM INTO ?1", [part.to_string_lossy()]).map_err(StoreError::from)?;
    let after = count(&source)?;
    let quiet = data_version(&source)? == version;
    let (schema, rows) = verify(part)?;
    match lost(&before, &rows, &after, quiet) {
        None => Ok((schema, rows)),
        Some(table) => Err(MaintenanceError::Unfit { path: part.to_owned(), why: format!("the copy lost rows of {table}") }),
    }
}

/// A table that lost rows in the copy. During concurrent writes only the counts of tables that never shrink can be compared.
fn lost(before: &Rows, copy: &Rows, after: &Rows, quiet: bool) -> Option<String> {
    let fits = |table: &String, least: u64| {
        let found = copy.get(table).copied();
        let most = after.get(table).copied().unwrap_or(least);
        match quiet {
            true => found == Some(least),
            false if ONLY_GROWING.contains(&table.as_str()) => found.is_some_and(|found| (least..=most).contains(&found)),
            false => found.is_some(),
        }
    };
    before.iter().find(|(table, least)| !fits(table, **least)).map(|(table, _)| table.clone())
}

/// Checks the pages, indexes and references of a copy. Returns its schema number and row counts.
pub(super) fn verify(path: &Path) -> Result<(i64, Rows), MaintenanceError> {
    let unfit = |why: String| MaintenanceError::Unfit { path: path.to_owned(), why };
    if !is_sqlite(path) {
        return Err(unfit("this is not an SQLite file".to_owned()));
    }
    let connection = open::read_only(path)?;
    let read = |sql: &str| -> Result<Vec<String>, StoreError> { all(&mut connection.prepare(sql)?, [], |columns| columns.text()) };
    let broken = |error: StoreError| unfit(error.to_string());
    let faults = read("PRAGMA integrity_check(1)").map_err(broken)?;
    if faults != ["ok"] {
        return Err(unfit(format!("the file is damaged: {}", faults.join("; "))));
    }
    let dangling = read("SELECT \"table\" FROM pragma_foreign_key_check LIMIT 1").map_err(broken)?;
    if let Some(table) = dangling.first() {
        return Err(unfit(format!("rows of {table} refer to missing rows")));
    }
    let schema = match migrate::recorded_number(&connection, path) {
        Ok(0) => return Err(unfit("this database has no schema".to_owned())),
        Ok(number) => number,
        Err(error @ StoreError::Prerelease(_)) => return Err(error.into()),
        Err(StoreError::Broken(why) | StoreError::Foreign(why)) => return Err(unfit(why)),
        Err(error) => return Err(broken(error)),
    };
    Ok((schema, count(&connection).map_err(broken)?))
}

/// The row count of every table, in one read transaction.
fn count(connection: &Connection) -> Result<Rows, StoreError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut names = snapshot.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")?;
    let mut rows = Rows::new();
    for name in all(&mut names, [], |columns| columns.text())? {
        let sql = format!("SELECT count(*) FROM \"{}\"", name.replace('"', "\"\""));
        let found: i64 = snapshot.query_row(&sql, [], |row| row.get(0))?;
        rows.insert(name, u64::try_from(found).unwrap_or(0));
    }
    Ok(rows)
}

/// Changes when another connection commits.
fn data_version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("PRAGMA data_version", [], |row| row.get(0))?)
}

/// Makes a new file name durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), MaintenanceError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_owned);
    File::open(&folder).and_then(|opened| opened.sync_all()).map_err(at(&folder))
}

pub(super) fn at(path: &Path) -> impl Fn(std::io::Error) -> MaintenanceError {
    move |source| MaintenanceError::File { path: path.to_owned(), source }
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
