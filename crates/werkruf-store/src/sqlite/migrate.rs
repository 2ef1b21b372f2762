//! Brings a database to the schema this binary knows. Numbered, checked against what was applied, forward only.
//!
//! Invariants: a migration and its mark are one transaction; an applied migration never changes; an older
//! database is copied aside before anything touches it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

use super::row::all;
use super::text::Stamp;
use crate::{SchemaReport, StoreError, crash};
use werkruf_contract::hex;

/// One step of the schema.
pub(super) struct Migration {
    pub(super) version: i64,
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
}

/// Every step, in order.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "first", sql: include_str!("migrations/0001_first.sql") },
    Migration { version: 2, name: "held", sql: include_str!("migrations/0002_held.sql") },
    Migration { version: 3, name: "approvals", sql: include_str!("migrations/0003_approvals.sql") },
    Migration { version: 4, name: "token_roles", sql: include_str!("migrations/0004_token_roles.sql") },
    Migration { version: 5, name: "clients", sql: include_str!("migrations/0005_clients.sql") },
    Migration { version: 6, name: "token_roles_until", sql: include_str!("migrations/0006_token_roles_until.sql") },
    Migration { version: 7, name: "sent", sql: include_str!("migrations/0007_sent.sql") },
    Migration { version: 8, name: "summaries", sql: include_str!("migrations/0008_summaries.sql") },
    Migration { version: 9, name: "ledger", sql: include_str!("migrations/0009_ledger.sql") },
    Migration { version: 10, name: "knowledge", sql: include_str!("migrations/0010_knowledge.sql") },
    Migration { version: 11, name: "retention", sql: include_str!("migrations/0011_retention.sql") },
    Migration { version: 12, name: "fewer_pages", sql: include_str!("migrations/0012_fewer_pages.sql") },
];

impl Migration {
    fn checksum(&self) -> String {
        hex(&Sha256::digest(self.sql.as_bytes()))
    }
}

/// Applies what is missing.
pub(super) fn migrate(connection: &Connection, path: &Path, steps: &[Migration], now: Timestamp) -> Result<(), StoreError> {
    let applied = applied(connection)?;
    let known = steps.last().map_or(0, |step| step.version);
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > known) {
        return Err(StoreError::TooNew { found: *found, known });
    }
    for (version, checksum) in &applied {
        let same = steps.iter().any(|step| step.version == *version && step.checksum() == *checksum);
        if !same {
            return Err(StoreError::Broken(format!("migration {version} in the database is not the one this binary has")));
        }
    }
    let current = applied.last().map_or(0, |(version, _)| *version);
    let missing = steps.iter().filter(|step| step.version > current);
    for (position, step) in missing.enumerate() {
        if position == 0 && current > 0 {
            back_up(connection, path, known)?;
        }
        apply(connection, step, now)?;
    }
    Ok(())
}

/// How far a file's schema is, without touching it; 0 where there is no file yet.
pub(super) fn report(path: &Path) -> Result<SchemaReport, StoreError> {
    let known = MIGRATIONS.last().map_or(0, |step| step.version);
    let found = if path.is_file() {
        let connection = super::open::read_only(path)?;
        let found = connection.query_row("SELECT coalesce(max(version), 0) FROM schema_migrations", [], |row| row.get(0));
        found.map_err(|_| StoreError::Broken("the file is a database of another program".to_owned()))?
    } else {
        0
    };
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    let pending = MIGRATIONS.iter().filter(|step| step.version > found).map(|step| format!("{:04}_{}", step.version, step.name));
    Ok(SchemaReport { found, known, pending: pending.collect() })
}

fn applied(connection: &Connection) -> Result<Vec<(i64, String)>, StoreError> {
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    if count("SELECT count(*) FROM sqlite_schema WHERE name = 'schema_migrations'")? == 0 {
        if count("SELECT count(*) FROM sqlite_schema")? > 0 {
            return Err(StoreError::Broken("the file is a database of another program".to_owned()));
        }
        connection.execute_batch(
            "CREATE TABLE schema_migrations (
               version    INTEGER NOT NULL PRIMARY KEY,
               name       TEXT NOT NULL,
               checksum   TEXT NOT NULL,
               applied_at TEXT NOT NULL
             ) STRICT",
        )?;
        crash::point("before_first_migration");
    }
    let mut statement = connection.prepare("SELECT version, checksum FROM schema_migrations ORDER BY version")?;
    all(&mut statement, [], |columns| Ok((columns.int()?, columns.text()?)))
}

fn apply(connection: &Connection, step: &Migration, now: Timestamp) -> Result<(), StoreError> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute_batch(step.sql)?;
    crash::point("inside_migration");
    transaction.execute(
        "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
        params![step.version, step.name, step.checksum(), Stamp::from(now)],
    )?;
    transaction.commit()?;
    crash::point("after_migration");
    Ok(())
}

/// Copies the database to `<db>.before-<version>`; half a copy never bears that name.
fn back_up(connection: &Connection, path: &Path, version: i64) -> Result<(), StoreError> {
    let target = beside(path, &format!(".before-{version}"));
    let half = beside(path, &format!(".before-{version}.part"));
    match std::fs::remove_file(&half) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::Unavailable(error.to_string())),
    }
    connection.execute("VACUUM INTO ?1", [half.to_string_lossy()])?;
    crash::point("migration_copied");
    let durable = std::fs::File::open(&half).and_then(|file| file.sync_all());
    durable.and_then(|()| std::fs::rename(&half, &target)).map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// The path with something appended to its file name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
