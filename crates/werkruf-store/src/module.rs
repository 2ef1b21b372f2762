//! What the store knows of a product module: its numbered migrations, its tables, and its lists in an import file.
//!
//! A module's SQL runs on the handles of [`crate::SqliteStore`] and [`crate::PostgresStore`]. The store itself names no table of a module:
//! move, erase and retention read [`ModuleSchema::tables`], and backup, grants and row-level security cover every table of the database.
//! docs/writing-a-module.md shows a whole module.

use std::sync::Arc;

use werkruf_contract::ToolObject;

use crate::import::ImportLists;

/// The modules of a binary. A database has the tables of all of them, whether or not a module is switched on.
pub type Modules = &'static [&'static ModuleSchema];

/// A product module: a name, tables, and tools that work on these tables.
pub trait Module: Send + Sync {
    /// The module's part of the schema. Its name is also the name of the module's section in the configuration.
    fn schema(&self) -> &'static ModuleSchema;
    /// The tools, ready for the registry.
    fn tools(self: Arc<Self>) -> Vec<Arc<dyn ToolObject>>;
}

/// The module's part of the schema.
#[derive(Debug)]
pub struct ModuleSchema {
    /// One lower-case word.
    pub name: &'static str,
    /// Every table that the migrations create.
    pub tables: &'static [ModuleTable],
    /// The module's lists in an import file.
    pub import: Option<&'static dyn ImportLists>,
    /// Migrations on SQLite, numbered from 1 without gaps. No table refers to a table of another part.
    pub sqlite: &'static [Migration],
    pub postgres: PostgresSchema,
}

/// What a module needs only on PostgreSQL.
#[derive(Debug)]
pub struct PostgresSchema {
    /// Numbered from 1 without gaps.
    pub migrations: &'static [Migration],
    pub functions: Option<FunctionSet>,
    /// A statement that runs after all rows of a SQLite database were moved, for example to set a sequence; empty for none.
    pub after_move: &'static str,
    /// SQL that creates the seeds' views and functions in the schema `public` too (`migrate --compat-views`); empty for none.
    pub compat_views: &'static str,
}

impl PostgresSchema {
    /// Migrations alone.
    pub const fn new(migrations: &'static [Migration]) -> Self {
        Self { migrations, functions: None, after_move: "", compat_views: "" }
    }
}

/// A step of the schema. An applied migration never changes; migrations only go forward.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Counts from 1 in each part, without gaps.
    pub number: i64,
    /// On PostgreSQL: the migration of the part that a binary must know at least to work on the schema; 0 where it may not know the part
    /// at all. A SQLite file has one process, so it is not read there.
    pub compatible_with: i64,
    pub name: &'static str,
    pub sql: &'static str,
}

impl Migration {
    /// The first migration of a part.
    pub const fn first(sql: &'static str) -> Self {
        Self { number: 1, compatible_with: 1, name: "first", sql }
    }
}

/// Functions on PostgreSQL. The whole set is replaced where the set in the database has a lower number.
#[derive(Debug, Clone, Copy)]
pub struct FunctionSet {
    /// Must rise with every change of a file after a release; `project_rules` compares both with its list.
    pub number: i64,
    /// The oldest set whose signatures this one keeps.
    pub compatible_with: i64,
    pub files: &'static [&'static str],
}

/// A table of a module.
#[derive(Debug, Clone, Copy)]
pub struct ModuleTable {
    pub name: &'static str,
    /// What happens with the rows when a person is erased.
    pub on_erase: OnErase,
    /// The column with the number of a branch. A branch that a row names is not deleted.
    pub branch: Option<&'static str>,
    /// Columns with JSON lists of names of roles. A role that a row names is neither deleted nor renamed.
    pub roles: &'static [&'static str],
    /// A column with a time; retention deletes a row once that time has passed.
    pub expires: Option<&'static str>,
    /// Whether only PostgreSQL has the table. Its rows are not moved.
    pub only_on_postgres: bool,
    /// Columns that only PostgreSQL has, for example because a trigger fills them.
    pub columns_only_on_postgres: &'static [&'static str],
}

impl ModuleTable {
    /// A table that both databases have, with the same columns.
    pub const fn new(name: &'static str, on_erase: OnErase) -> Self {
        Self { name, on_erase, branch: None, roles: &[], expires: None, only_on_postgres: false, columns_only_on_postgres: &[] }
    }
}

/// What an erasure of a person does with the rows of a table.
#[derive(Debug, Clone, Copy)]
pub enum OnErase {
    /// Deletes the rows whose column is the person's id. The table has a column `tenant_id` too.
    DeleteRowsOf { person: &'static str },
    /// Leaves the rows alone. Each column of text is named, so that a new column is considered; ids and times need no mention.
    Keep { columns: &'static [&'static str], why: &'static str },
}

/// The tables whose rows an erasure deletes, each with the column that names the person.
pub(crate) fn rows_to_erase(modules: Modules) -> impl Iterator<Item = (&'static str, &'static str)> {
    tables(modules).filter_map(|table| match table.on_erase {
        OnErase::DeleteRowsOf { person } => Some((table.name, person)),
        OnErase::Keep { .. } => None,
    })
}

/// The tables whose rows belong to a branch, each with the column of its number.
pub(crate) fn of_branches(modules: Modules) -> impl Iterator<Item = (&'static str, &'static str)> {
    tables(modules).filter_map(|table| table.branch.map(|column| (table.name, column)))
}

/// The columns that name roles, each with its table.
pub(crate) fn naming_roles(modules: Modules) -> impl Iterator<Item = (&'static str, &'static str)> {
    tables(modules).flat_map(|table| table.roles.iter().map(|column| (table.name, *column)))
}

/// The tables whose rows expire, each with the column of the time.
pub(crate) fn expiring(modules: Modules) -> impl Iterator<Item = (&'static str, &'static str)> {
    tables(modules).filter_map(|table| table.expires.map(|column| (table.name, column)))
}

pub(crate) fn tables(modules: Modules) -> impl Iterator<Item = &'static ModuleTable> {
    modules.iter().flat_map(|module| module.tables)
}
