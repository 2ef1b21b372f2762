//! What an older program left behind, on its way into our tables.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use werkruf_contract::{BoxFuture, Uuid};

use crate::StoreError;

/// Taking over an older program's database.
pub trait Legacy: Send + Sync {
    /// Reads the other file and writes what is not here yet: every row it has is written or skipped with a reason.
    fn take_in(&self, import: LegacyImport) -> BoxFuture<'_, Result<LegacyReport, LegacyError>>;
}

/// What to take over, and for whom.
#[derive(Debug, Clone)]
pub struct LegacyImport {
    /// The other program's SQLite file. It is only read.
    pub source: PathBuf,
    pub tenant_id: Uuid,
    /// Whose a conversation is when nobody here is known by the id it names.
    pub user_id: Option<String>,
    /// Says what would happen and writes nothing.
    pub dry_run: bool,
}

/// What was found and done.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LegacyReport {
    /// Rows by table of the other program.
    pub read: BTreeMap<String, u64>,
    /// Rows by table of ours.
    pub written: BTreeMap<String, u64>,
    pub skipped: Vec<Skipped>,
}

impl LegacyReport {
    pub(crate) fn wrote(&mut self, table: &str) {
        *self.written.entry(table.to_owned()).or_default() += 1;
    }

    pub(crate) fn skip(&mut self, table: &str, id: &Value, reason: impl Into<String>) {
        self.skipped.push(Skipped { table: table.to_owned(), id: id.clone(), reason: reason.into() });
    }
}

/// A row that was not written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skipped {
    pub table: String,
    /// As the other program has it; null for a whole table.
    pub id: Value,
    pub reason: String,
}

/// Why nothing was taken over. The operator acts on all of them.
#[derive(Debug, thiserror::Error)]
pub enum LegacyError {
    /// The other file cannot be read, or holds nothing that is known.
    #[error("{}: {why}", path.display())]
    Source { path: PathBuf, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}
