//! What an older program left behind (seeds 000, 001 and 004), on its way into our tables: read once, planned, and written
//! conversation by conversation. Reading and writing are each database's own; the plan between them knows none.

pub(crate) mod call;
pub(crate) mod fields;
pub(crate) mod found;
pub(crate) mod ids;
pub(crate) mod message;
pub(crate) mod plan;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use werkruf_contract::{BoxFuture, Uuid};

use crate::StoreError;

/// Taking over an older program's database.
pub trait Legacy: Send + Sync {
    /// Reads the other file and writes what is not here yet: every row it has is written or skipped with a reason.
    fn import_legacy(&self, import: LegacyImport) -> BoxFuture<'_, Result<LegacyReport, LegacyError>>;
}

/// What to take over, and for whom.
#[derive(Debug, Clone)]
pub struct LegacyImport {
    /// It is only read.
    pub source: LegacySource,
    pub tenant_id: Uuid,
    /// Whose a conversation is when nobody here is known by the id it names.
    pub user_id: Option<String>,
    /// Says what would happen and writes nothing.
    pub dry_run: bool,
}

/// The other program's database.
#[derive(Clone)]
pub enum LegacySource {
    Sqlite(PathBuf),
    /// An address with credentials in it.
    Postgres(String),
}

/// For eyes: never a password.
impl fmt::Display for LegacySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "{}", file.display()),
            Self::Postgres(url) => {
                let address = url.split_once("://").map_or("", |(_, rest)| rest).split(['?', '#']).next().unwrap_or_default();
                write!(f, "postgres://{}", address.rsplit_once('@').map_or(address, |(_, host)| host))
            }
        }
    }
}

impl fmt::Debug for LegacySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LegacySource({self})")
    }
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
    /// The other database cannot be read, or holds nothing that is known.
    #[error("{name}: {why}")]
    Source { name: String, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

// Why a row is skipped.
pub(crate) const THERE: &str = "already imported";
pub(crate) const RUNNING: &str = "a turn is running in its conversation; import again later";
pub(crate) const FOREIGN: &str = "another tenant has a conversation of this id";
/// Whose a conversation is when nobody says.
pub(crate) const NOBODY: &str = "import";
pub(crate) const ASSISTANT: &str = "default";

/// Conversations written in one go: others who write wait no longer than that.
pub(crate) const AT_ONCE: usize = 20;

/// Reads the source and plans what becomes of it.
pub(crate) async fn prepare(source: LegacySource, tenant_id: Uuid) -> Result<(plan::Plan, LegacyReport), LegacyError> {
    let (found, mut report) = match source {
        LegacySource::Sqlite(file) => on_a_thread_of_its_own(move || crate::sqlite::read_legacy(&file)).await??,
        LegacySource::Postgres(url) => crate::postgres::read_legacy(&url).await?,
    };
    for (table, rows) in [("conversations", &found.conversations), ("messages", &found.messages), ("tool_calls", &found.calls)] {
        if !rows.is_empty() {
            report.written.insert(table.to_owned(), 0);
        }
    }
    Ok(on_a_thread_of_its_own(move || {
        let plan = plan::plan(found, tenant_id, &mut report);
        (plan, report)
    })
    .await?)
}

/// A large database takes a while to read and to plan: not on a thread that serves requests.
async fn on_a_thread_of_its_own<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Broken(format!("reading did not end: {error}")))
}
