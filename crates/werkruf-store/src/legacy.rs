//! Import of another program's database (seeds 000, 001 and 004): its rows are read once, planned, and written conversation by
//! conversation. Each database has its own code for reading and writing; the plan is independent of the database.

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
use message::Origin;

/// Imports another program's database.
pub trait Legacy: Send + Sync {
    /// Reads the source and writes the rows that were not imported before. Every row is written, or skipped with a reason.
    fn import_legacy(&self, import: LegacyImport) -> BoxFuture<'_, Result<LegacyReport, LegacyError>>;
}

/// What to import, and for whom.
#[derive(Debug, Clone)]
pub struct LegacyImport {
    /// Only read, never changed.
    pub source: LegacySource,
    pub tenant_id: Uuid,
    /// The user of a conversation whose own user id is unknown here.
    pub user_id: Option<String>,
    /// A larger session state is left out.
    pub max_state_bytes: usize,
    /// Only reports what would be written.
    pub dry_run: bool,
}

/// The database to import from.
#[derive(Clone)]
pub enum LegacySource {
    Sqlite(PathBuf),
    /// An address with credentials in it.
    Postgres(String),
}

/// For messages and logs; never shows a password.
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

/// What was read, written and skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LegacyReport {
    /// Rows by table of the source.
    pub read: BTreeMap<String, u64>,
    /// Rows by table of this database.
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

    /// Skips a row of the source. A conversation or message without a row of its own there, such as a result inside another message, is not reported.
    pub(crate) fn skip_origin(&mut self, origin: Option<&Origin>, reason: &str) {
        if let Some(origin) = origin {
            self.skip(&origin.table, &origin.id, reason);
        }
    }
}

/// A row that was not written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skipped {
    pub table: String,
    /// The id in the source; null for a whole table.
    pub id: Value,
    pub reason: String,
}

/// Why nothing was imported. The operator acts on all of them.
#[derive(Debug, thiserror::Error)]
pub enum LegacyError {
    /// The source cannot be read, or has no known table.
    #[error("{name}: {why}")]
    Source { name: String, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

// Reasons for skipping a row.
pub(crate) const ALREADY_IMPORTED: &str = "already imported";
pub(crate) const RUNNING: &str = "a turn is running in its conversation; import again later";
pub(crate) const OTHER_TENANT: &str = "another tenant has a conversation of this id";
pub(crate) const STATE_TOO_LARGE: &str = "state_too_large: the conversation was imported without its session state";
/// The user of a conversation without a user.
const DEFAULT_USER: &str = "import";
pub(crate) const ASSISTANT: &str = "default";

/// Whether rows may be added to a conversation.
pub(crate) enum Open {
    Yes { user_id: String },
    No(&'static str),
}

/// The user of a conversation: the known user that the other program names, else the one that the operator named.
pub(crate) fn user_of(known: Option<i64>, given: Option<&str>, named: Option<&str>) -> String {
    let known = known.map(|id| id.to_string());
    known.or_else(|| given.or(named).map(str::to_owned)).unwrap_or_else(|| DEFAULT_USER.to_owned())
}

/// Conversations per transaction, which bounds how long other writers wait.
pub(crate) const BATCH: usize = 20;

/// Reads the source and plans the import.
pub(crate) async fn prepare(
    source: LegacySource,
    tenant_id: Uuid,
    max_state_bytes: usize,
) -> Result<(plan::Plan, LegacyReport), LegacyError> {
    let (found, mut report) = match source {
        LegacySource::Sqlite(file) => on_blocking_thread(move || crate::sqlite::read_legacy(&file)).await??,
        LegacySource::Postgres(url) => crate::postgres::read_legacy(&url).await?,
    };
    for (table, rows) in [("conversations", &found.conversations), ("messages", &found.messages), ("tool_calls", &found.calls)] {
        if !rows.is_empty() {
            report.written.insert(table.to_owned(), 0);
        }
    }
    Ok(on_blocking_thread(move || {
        let mut plan = plan::plan(found, tenant_id, &mut report);
        plan.drop_large_states(max_state_bytes, &mut report);
        (plan, report)
    })
    .await?)
}

/// Runs the work on a blocking thread: reading and planning a large database takes too long for a thread that serves requests.
async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Broken(format!("reading did not end: {error}")))
}
