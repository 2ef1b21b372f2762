//! Parts, numbers and checksums of migrations, and the copy made before an upgrade.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;
use werkruf_contract::Clock;

use super::super::SqliteStore;
use super::{Part, RECORD, beside, migrate, parts, recorded_number, report, schema_number};
use crate::story::MODULES;
use crate::story::TestCloser;
use crate::{Migration, StoreError};

const FIRST: Migration = Migration { number: 1, compatible_with: 1, name: "one", sql: "CREATE TABLE a (n INTEGER)" };
const SECOND: Migration =
    Migration { number: 2, compatible_with: 1, name: "two", sql: "CREATE TABLE b (n INTEGER); INSERT INTO b VALUES (1);" };
const BAD: Migration =
    Migration { number: 2, compatible_with: 1, name: "bad", sql: "CREATE TABLE b (n INTEGER); INSERT INTO nowhere VALUES (1);" };
const CHANGED: Migration = Migration { number: 1, compatible_with: 1, name: "one", sql: "CREATE TABLE a (n TEXT)" };

const BASE: Part = Part { name: "base", migrations: &[FIRST] };
const BASE_2: Part = Part { name: "base", migrations: &[FIRST, SECOND] };
const EXTRA: Part =
    Part { name: "extra", migrations: &[Migration { number: 1, compatible_with: 1, name: "one", sql: "CREATE TABLE c (n INTEGER)" }] };

#[expect(clippy::disallowed_methods, reason = "the test looks at the file itself")]
fn open(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn apply(connection: &Connection, path: &Path, parts: &[Part]) -> Result<(), StoreError> {
    migrate(connection, path, parts, Timestamp::UNIX_EPOCH)
}

/// A new database with this part.
fn migrated(part: Part) -> (TempDir, PathBuf, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let connection = open(&path);
    apply(&connection, &path, &[part]).unwrap();
    (folder, path, connection)
}

fn tables(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name IN ('a', 'b', 'c')", [], |row| row.get(0)).unwrap()
}

#[test]
fn an_older_database_is_copied_before_its_upgrade() {
    let (_folder, path, connection) = migrated(BASE);
    let copy = beside(&path, ".before-2");
    assert!(!copy.exists(), "a new database needs no copy");
    apply(&connection, &path, &[BASE_2]).unwrap();
    assert_eq!((tables(&connection), tables(&open(&copy))), (2, 1));
    apply(&connection, &path, &[BASE_2]).unwrap();
}

#[test]
fn each_part_counts_its_own_migrations() {
    let (_folder, path, connection) = migrated(BASE);
    apply(&connection, &path, &[BASE, EXTRA]).unwrap();
    apply(&connection, &path, &[BASE_2, EXTRA]).unwrap();
    assert_eq!(tables(&connection), 3);
    let rows = "SELECT group_concat(part || number, ' ') FROM (SELECT part, number FROM schema_migrations ORDER BY part, number)";
    assert_eq!(connection.query_row(rows, [], |row| row.get::<_, String>(0)).unwrap(), "base1 base2 extra1");
    assert_eq!((recorded_number(&connection, &path).unwrap(), schema_number(&[BASE_2, EXTRA])), (3, 3));
    let unknown_part = apply(&connection, &path, &[BASE_2]);
    assert!(matches!(unknown_part, Err(StoreError::TooNew { found: 1, known: 0, .. })), "{unknown_part:?}");
}

#[test]
fn a_migration_that_fails_leaves_nothing_and_may_be_tried_again() {
    let (_folder, path, connection) = migrated(BASE);
    assert!(apply(&connection, &path, &[Part { name: "base", migrations: &[FIRST, BAD] }]).is_err());
    assert_eq!(tables(&connection), 1);
    apply(&connection, &path, &[BASE_2]).unwrap();
    assert_eq!(tables(&connection), 2);
}

#[test]
fn a_changed_migration_and_a_newer_schema_are_refused() {
    let (_folder, path, connection) = migrated(BASE_2);
    let newer = apply(&connection, &path, &[BASE]);
    assert!(matches!(newer, Err(StoreError::TooNew { found: 2, known: 1, .. })), "{newer:?}");
    // A migration that was changed under its number is one of an unreleased build.
    let changed = [Part { name: "base", migrations: &[CHANGED, SECOND] }];
    for refused in [apply(&connection, &path, &changed), report(&path, &changed).map(|_| ())] {
        assert!(matches!(&refused, Err(StoreError::Prerelease(named)) if *named == path.display().to_string()), "{refused:?}");
    }
}

#[test]
fn a_database_of_another_program_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, sql) in [("a.db", "CREATE TABLE theirs (n INTEGER)"), ("b.db", "CREATE TABLE schema_migrations (version TEXT)")] {
        let path = folder.path().join(name);
        let connection = open(&path);
        connection.execute_batch(sql).unwrap();
        let refused = apply(&connection, &path, &parts(MODULES));
        assert!(matches!(refused, Err(StoreError::Foreign(_))), "{refused:?}");
        assert_eq!(connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }
}

/// The signs of such a database: the record without parts, and the tables without a record or with an empty one.
#[test]
fn a_database_of_an_unreleased_build_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let record = "CREATE TABLE schema_migrations (version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
          applied_at TEXT NOT NULL) STRICT;
        INSERT INTO schema_migrations VALUES (12, 'fewer_pages', 'c', '2026-11-01T00:00:00.000Z');";
    let tables = "CREATE TABLE turns (id TEXT); CREATE TABLE tool_calls (id TEXT); CREATE TABLE leases (owner TEXT);";
    let emptied = format!("{RECORD}; {tables}");
    for (name, sql) in [("record.db", record), ("tables.db", tables), ("emptied.db", &emptied)] {
        let path = folder.path().join(name);
        open(&path).execute_batch(sql).unwrap();
        let dump = || {
            let sql = "SELECT group_concat(name || sql) FROM sqlite_schema";
            open(&path).query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
        };
        let (before, bytes) = (dump(), std::fs::read(&path).unwrap());
        let clock = Clock::system(0);
        let restored = SqliteStore::restore(
            &path,
            &folder.path().join("new.db"),
            false,
            &TestCloser(clock.clone()),
            &clock,
            MODULES,
            &crate::SecretKeys::default(),
        )
        .unwrap_err();
        assert_eq!(restored.code(), "schema_prerelease");
        assert!(restored.to_string().contains(name) && !restored.to_string().contains(".restoring"), "{restored}");
        for refused in [SqliteStore::open(&path, &clock, MODULES).map(|_| ()), report(&path, &parts(MODULES)).map(|_| ())] {
            let Err(StoreError::Prerelease(named)) = &refused else { panic!("{refused:?}") };
            assert!(named.ends_with(name), "{named}");
            assert!(refused.unwrap_err().to_string().contains("werkruf conversations export"));
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "not even its journal mode");
        assert_eq!(dump(), before);
    }
}

#[test]
fn numbers_count_from_one_without_gaps_and_parts_are_named_once() {
    let known = parts(MODULES);
    for part in &known {
        assert!(part.migrations.iter().map(|migration| migration.number).eq(1..=part.newest()), "{}", part.name);
    }
    let names: std::collections::BTreeSet<_> = known.iter().map(|part| part.name).collect();
    assert_eq!(names.len(), known.len());
}
