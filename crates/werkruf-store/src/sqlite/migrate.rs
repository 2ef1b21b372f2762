//! Applies the migrations that a database lacks. Each part of the schema has its own numbered migrations with checksums.
//!
//! Invariants: a migration and its record are one transaction; an applied migration never changes; migrations only go forward; a database
//! that already has migrations is copied to a second file before its schema changes.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

use super::row::all;
use super::text::Stamp;
use crate::{Migration, Modules, SchemaReport, StoreError, crash};
use werkruf_contract::hex;

/// A group of tables with migrations of its own. No table of one part refers to a table of another part.
pub(super) struct Part {
    pub(super) name: &'static str,
    /// Numbered from 1 without gaps.
    pub(super) migrations: &'static [Migration],
}

const KERNEL: Part = Part { name: "kernel", migrations: &[Migration::first(include_str!("migrations/kernel/0001_first.sql"))] };

/// The schema of a binary with these modules.
pub(super) fn parts(modules: Modules) -> Vec<Part> {
    let of_modules = modules.iter().map(|module| Part { name: module.name, migrations: module.sqlite });
    std::iter::once(KERNEL).chain(of_modules).collect()
}

const RECORD: &str = "CREATE TABLE schema_migrations (
  part       TEXT NOT NULL,
  number     INTEGER NOT NULL,
  name       TEXT NOT NULL,
  checksum   TEXT NOT NULL,
  applied_at TEXT NOT NULL,
  PRIMARY KEY (part, number)
) STRICT";

/// A row of the record.
struct Applied {
    part: String,
    number: i64,
    checksum: String,
}

impl Part {
    fn newest(&self) -> i64 {
        self.migrations.last().map_or(0, |migration| migration.number)
    }
}

fn checksum(migration: &Migration) -> String {
    hex(&Sha256::digest(migration.sql.as_bytes()))
}

/// The schema number of a binary with these parts: the number of its migrations in all parts.
pub(super) fn schema_number(parts: &[Part]) -> i64 {
    parts.iter().map(Part::newest).sum()
}

/// The schema number of a database: the number of migrations it has. 0 for an empty one.
pub(super) fn recorded_number(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    if !has_record(connection, path)? {
        return Ok(0);
    }
    Ok(connection.query_row("SELECT count(*) FROM schema_migrations", [], |row| row.get(0))?)
}

/// Applies the migrations that are missing.
pub(super) fn migrate(connection: &Connection, path: &Path, parts: &[Part], now: Timestamp) -> Result<(), StoreError> {
    if !has_record(connection, path)? {
        connection.execute_batch(RECORD)?;
        crash::point("before_first_migration");
    }
    let applied = applied(connection)?;
    check(&applied, parts, path)?;
    for (position, (part, migration)) in missing(&applied, parts).into_iter().enumerate() {
        if position == 0 && !applied.is_empty() {
            back_up(connection, path, schema_number(parts))?;
        }
        apply(connection, part, migration, now)?;
    }
    Ok(())
}

/// Compares the schema of a file with this binary's, without changing the file. A file that does not exist has schema 0.
pub(super) fn report(path: &Path, parts: &[Part]) -> Result<SchemaReport, StoreError> {
    let mut applied_here = Vec::new();
    if path.is_file() {
        let connection = super::open::unchanged(path)?;
        if has_record(&connection, path)? {
            applied_here = applied(&connection)?;
        }
    }
    check(&applied_here, parts, path)?;
    let missing = missing(&applied_here, parts).into_iter();
    Ok(SchemaReport {
        found: i64::try_from(applied_here.len()).unwrap_or(i64::MAX),
        known: schema_number(parts),
        pending: missing.map(|(part, migration)| format!("{}/{:04}_{}", part.name, migration.number, migration.name)).collect(),
    })
}

/// Whether the database has a record of migrations; false for an empty database. A database of an early unreleased build has the tables
/// or a record without parts, or with nothing in it.
fn has_record(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let is_true = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, bool>(0));
    if is_true("SELECT EXISTS (SELECT 1 FROM pragma_table_info('schema_migrations') WHERE name = 'part')")? {
        let lost = "SELECT NOT EXISTS (SELECT 1 FROM schema_migrations) AND EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'turns')";
        return if is_true(lost)? { Err(StoreError::Prerelease(path.display().to_string())) } else { Ok(true) };
    }
    if is_true("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)")? {
        return Ok(false);
    }
    let unreleased = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('schema_migrations') WHERE name = 'checksum')
        OR (SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('tool_calls', 'turns', 'leases')) = 3";
    if is_true(unreleased)? {
        return Err(StoreError::Prerelease(path.display().to_string()));
    }
    Err(StoreError::Foreign("the file is a database of another program".to_owned()))
}

fn applied(connection: &Connection) -> Result<Vec<Applied>, StoreError> {
    let mut statement = connection.prepare("SELECT part, number, checksum FROM schema_migrations ORDER BY part, number")?;
    all(&mut statement, [], |columns| Ok(Applied { part: columns.text()?, number: columns.int()?, checksum: columns.text()? }))
}

fn missing<'a>(applied: &[Applied], parts: &'a [Part]) -> Vec<(&'a Part, &'a Migration)> {
    let is_applied = |part: &Part, migration: &Migration| applied.iter().any(|row| row.part == part.name && row.number == migration.number);
    let known = parts.iter().flat_map(|part| part.migrations.iter().map(move |migration| (part, migration)));
    known.filter(|(part, migration)| !is_applied(part, migration)).collect()
}

/// Refuses a database with a migration that this binary does not know, or knows differently. Only unreleased builds had other migrations
/// under the same number.
fn check(applied: &[Applied], parts: &[Part], path: &Path) -> Result<(), StoreError> {
    refuse_newer(applied, parts)?;
    for row in applied {
        let part = parts.iter().find(|part| part.name == row.part);
        let mut known = part.into_iter().flat_map(|part| part.migrations);
        if !known.any(|migration| migration.number == row.number && checksum(migration) == row.checksum) {
            return Err(StoreError::Prerelease(path.display().to_string()));
        }
    }
    Ok(())
}

/// A newer release may have more migrations of a part, or more parts.
fn refuse_newer(applied: &[Applied], parts: &[Part]) -> Result<(), StoreError> {
    let newest = |row: &Applied| parts.iter().find(|part| part.name == row.part).map_or(0, Part::newest);
    match applied.iter().filter(|row| row.number > newest(row)).max_by_key(|row| row.number) {
        Some(row) => Err(StoreError::TooNew { part: row.part.clone(), found: row.number, known: newest(row) }),
        None => Ok(()),
    }
}

fn apply(connection: &Connection, part: &Part, migration: &Migration, now: Timestamp) -> Result<(), StoreError> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute_batch(migration.sql)?;
    crash::point("inside_migration");
    transaction.execute(
        "INSERT INTO schema_migrations (part, number, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![part.name, migration.number, migration.name, checksum(migration), Stamp::from(now)],
    )?;
    transaction.commit()?;
    crash::point("after_migration");
    Ok(())
}

/// Copies the database to `<db>.before-<schema number>`. The copy gets that name only when it is complete.
fn back_up(connection: &Connection, path: &Path, number: i64) -> Result<(), StoreError> {
    let target = beside(path, &format!(".before-{number}"));
    let incomplete = beside(path, &format!(".before-{number}.part"));
    match std::fs::remove_file(&incomplete) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::Unavailable(error.to_string())),
    }
    connection.execute("VACUUM INTO ?1", [incomplete.to_string_lossy()])?;
    crash::point("migration_copied");
    let durable = std::fs::File::open(&incomplete).and_then(|file| file.sync_all());
    durable.and_then(|()| std::fs::rename(&incomplete, &target)).map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// The path with a suffix appended to its file name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
