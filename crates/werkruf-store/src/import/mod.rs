//! An import file: tenant, branches, roles and users, and the lists of modules. All rows are written in one transaction, or none.
//!
//! The kernel parses the file and checks its own lists. A module reads, checks and writes its own lists through [`ImportLists`] and
//! [`ImportRows`], inside the same transaction.

mod acts;
mod check;
mod file;
mod lines;

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::Connection;
use serde::Serialize;
use werkruf_contract::{BoxFuture, Uuid};

use crate::postgres::{Fault, Transaction};
use crate::{Author, Branch, NewUser, RoleWithPermissions, StoreError, StoreFuture};

pub(crate) use acts::{acts, in_order};
pub use check::{Checked, Faults, Known, check_list, day, filled, moment};
pub(crate) use check::{Stored, check_new_tenant, check_references, check_values};
pub(crate) use file::Object;
pub use file::{Fields, Row, parse_batch};
pub use lines::add_lines;

/// The content of an import file. A missing list changes nothing.
#[derive(Debug, Default)]
pub struct ImportBatch {
    pub tenant: String,
    pub branches: Vec<Branch>,
    pub roles: Vec<RoleWithPermissions>,
    pub users: Vec<NewUser>,
    /// The rows of modules, in the order of the modules.
    pub of_modules: Vec<Box<dyn ImportRows>>,
    /// Who imports, for the audit log.
    pub by: Author,
}

impl ImportBatch {
    /// Rows by list, without empty lists.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let own = [("branches", self.branches.len()), ("roles", self.roles.len()), ("users", self.users.len())];
        let all = own.into_iter().chain(self.of_modules.iter().flat_map(|rows| rows.counts()));
        all.filter(|(_, count)| *count > 0).map(|(list, count)| (list.to_owned(), count as u64)).collect()
    }
}

/// Writes import files.
pub trait Import: Send + Sync {
    /// Writes all rows of an import file in one transaction, or none when there are faults. `new_tenant_id` is used when the tenant is new.
    fn import(&self, batch: ImportBatch, new_tenant_id: Uuid, now: Timestamp) -> StoreFuture<'_, Result<ImportReport, Vec<ImportFault>>>;
}

/// The lists of a module in an import file.
pub trait ImportLists: std::fmt::Debug + Sync {
    /// The names of the lists.
    fn names(&self) -> &'static [&'static str];
    /// Reads the lists. `faults` are those of the structure; `values` are those of rows whose structure is right.
    fn read(&self, file: &mut Fields<'_>, faults: &mut Faults, values: &mut Faults) -> Box<dyn ImportRows>;
}

/// The rows of a module's lists.
pub trait ImportRows: std::fmt::Debug + Send + Sync {
    /// Checks everything that does not need the database.
    fn check_values(&self, faults: &mut Faults);
    /// Checks that every row that is referred to exists, in the file or in the tenant.
    fn check_references(&self, known: &Known, faults: &mut Faults);
    /// Each list with the number of its rows.
    fn counts(&self) -> Vec<(&'static str, usize)>;
    /// Writes all rows. A row with the same id is replaced.
    fn write_sqlite(&self, c: &Connection, tenant_id: Uuid, now: Timestamp) -> Result<(), StoreError>;
    /// Writes all rows, as the role of the tenant. It may run a second time after a rollback.
    fn write_postgres<'a>(&'a self, transaction: &'a Transaction, tenant_id: Uuid, now: Timestamp) -> BoxFuture<'a, Result<(), Fault>>;
}

/// What an import wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    pub tenant_id: Uuid,
    /// Rows by table.
    pub written: BTreeMap<String, u64>,
}

/// A fault in an import file, by JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportFault {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub message: String,
}

/// Why an import file was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportRefusal {
    Faults(Vec<ImportFault>),
    /// The file has a list of a module that is not on.
    ModuleOff {
        module: &'static str,
        list: &'static str,
    },
}
