//! What the schemas of all modules must fulfil together.

use std::collections::BTreeSet;

use rusqlite::Connection;
use werkruf_contract::Clock;
use werkruf_store::{ModuleTable, OnErase, SqliteStore};

use super::MODULES;

fn tables() -> impl Iterator<Item = &'static ModuleTable> {
    MODULES.iter().flat_map(|module| module.tables)
}

/// Every table with its columns of text, in a database with or without the modules.
fn columns(modules: werkruf_store::Modules) -> BTreeSet<(String, Option<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    drop(SqliteStore::open(&path, &Clock::system(0), modules).unwrap());
    #[expect(clippy::disallowed_methods, reason = "the test looks at the file itself")]
    let file = Connection::open(&path).unwrap();
    let sql = "SELECT s.name, CASE WHEN c.type = 'TEXT' THEN c.name END FROM sqlite_schema s, pragma_table_xinfo(s.name) c
        WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite_%'";
    let mut statement = file.prepare(sql).unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

#[test]
fn each_module_lists_every_table_that_it_creates() {
    let of_kernel: BTreeSet<String> = columns(&[]).into_iter().map(|(table, _)| table).collect();
    let created: BTreeSet<String> =
        columns(MODULES).into_iter().map(|(table, _)| table).filter(|table| !of_kernel.contains(table)).collect();
    let listed: BTreeSet<String> = tables().filter(|table| !table.only_on_postgres).map(|table| table.name.to_owned()).collect();
    assert_eq!(created, listed);
    assert_eq!(tables().count(), tables().map(|table| table.name).collect::<BTreeSet<_>>().len(), "a table belongs to one module");
    for module in MODULES {
        for migrations in [module.sqlite, module.postgres.migrations] {
            let numbers: Vec<i64> = migrations.iter().map(|migration| migration.number).collect();
            assert!(numbers.iter().copied().eq(1..=i64::try_from(numbers.len()).unwrap()), "{}: {numbers:?}", module.name);
        }
    }
}

/// A database with the tables of all modules.
fn new_database() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    drop(SqliteStore::open(&path, &Clock::system(0), MODULES).unwrap());
    #[expect(clippy::disallowed_methods, reason = "the test looks at the file itself")]
    let file = Connection::open(&path).unwrap();
    (folder, file)
}

/// A misspelt column would fail every erasure, every retention run or every deletion of a branch.
#[test]
fn the_columns_that_a_table_names_exist() {
    let (_folder, file) = new_database();
    for table in tables().filter(|table| !table.only_on_postgres) {
        let person = match table.on_erase {
            OnErase::DeleteRowsOf { person } => vec!["tenant_id", person],
            OnErase::Keep { .. } => Vec::new(),
        };
        for column in person.into_iter().chain(table.expires).chain(table.branch).chain(table.roles.iter().copied()) {
            let sql = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE name = ?2";
            let found: i64 = file.query_row(sql, [table.name, column], |row| row.get(0)).unwrap();
            assert_eq!(found, 1, "{}.{column}", table.name);
        }
    }
}

/// A branch is not deleted while rows name it, so a table must say which column that is.
#[test]
fn every_table_with_a_branch_says_so() {
    let (_folder, file) = new_database();
    for table in tables().filter(|table| !table.only_on_postgres) {
        let sql = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE name = 'branch_id'";
        let found: i64 = file.query_row(sql, [table.name], |row| row.get(0)).unwrap();
        assert_eq!(found == 1, table.branch.is_some(), "{}", table.name);
    }
}

#[test]
fn every_module_can_be_switched_on() {
    assert!(MODULES.iter().all(|module| crate::config::ModulesOn::ALL.has(module.name)));
}

/// A table whose rows stay when a person is erased names every column of text, so that a new column is considered.
#[test]
fn every_column_of_text_is_erased_or_has_a_reason_to_stay() {
    let found = columns(MODULES);
    for table in tables().filter(|table| !table.only_on_postgres) {
        let OnErase::Keep { columns, why } = table.on_erase else { continue };
        assert!(!why.is_empty(), "{}", table.name);
        let text = found.iter().filter(|(name, _)| name == table.name).filter_map(|(_, column)| column.as_deref());
        // Ids and times are not content.
        let content: BTreeSet<&str> = text.filter(|name| *name != "id" && !name.ends_with("_id") && !name.ends_with("_at")).collect();
        assert_eq!(content, columns.iter().copied().collect(), "{}", table.name);
    }
}
