//! What an operator wants to know of a database as a whole: how much waits, and what is wrong. Nothing here writes.

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Uuid;

use crate::{Counts, RowCounts, StoreFuture};

/// A turn that was not written to for this long, and waits for no approval, does not end by itself.
const STUCK_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// Requests without a price are looked for in this span.
const UNPRICED_SPAN: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Numbers of the whole database, and of this process's connections to it.
pub trait Diagnostics: Send + Sync {
    /// How much waits. It reads indexes, of which that of the outbox grows with its rows.
    fn measurements(&self) -> StoreFuture<'_, Measurements>;
    /// What is wrong. It may take a while: the file of SQLite is read as a whole.
    fn diagnose(&self, now: Timestamp) -> StoreFuture<'_, Diagnosis>;
    /// This process's connections at the moment. Nothing is asked of the database.
    fn connections(&self) -> DatabaseConnections;
    /// Counts rows of all tenants. Calls are recent if their id is not smaller than `first`: ids grow with time.
    fn row_counts(&self, first: Uuid) -> StoreFuture<'_, RowCounts>;
    /// What this process has written since it opened the database.
    fn counts(&self) -> Counts;
}

/// How much waits, over all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Measurements {
    /// Rows of the outbox by status; a status without rows is missing.
    pub outbox: Vec<(String, i64)>,
    pub pending_approvals: i64,
    /// Turns that have not ended, waiting ones included.
    pub open_turns: i64,
    /// Of these, turns that wait for their start.
    pub waiting_turns: i64,
    /// What the database takes on the disk.
    pub size_bytes: i64,
}

impl Measurements {
    /// The rows of the outbox with a status.
    pub fn outbox_rows(&self, status: &str) -> i64 {
        self.outbox.iter().find(|(found, _)| found == status).map_or(0, |(_, rows)| *rows)
    }
}

/// What is wrong with a database, beside how much waits in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diagnosis {
    pub measurements: Measurements,
    /// Product and version.
    pub version: String,
    /// The database's clock, where it is another machine's.
    pub now: Option<Timestamp>,
    /// Faults of the stored pages.
    pub damage: Vec<String>,
    /// Turns that nothing was written to for an hour, and that wait for no approval.
    pub stuck_turns: i64,
    /// The oldest of them.
    pub stuck_turn: Option<Uuid>,
    /// The models of the last 30 days whose requests have tokens but no cost, with the number of these requests.
    pub unpriced: Vec<(String, i64)>,
}

/// The connections of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseConnections {
    pub open: usize,
    pub idle: usize,
    /// Operations that wait for a connection.
    pub waiting: usize,
}

/// A turn that was last written before this time is stuck.
pub(crate) fn stuck_before(now: Timestamp) -> Timestamp {
    now.checked_sub(STUCK_AFTER).unwrap_or(Timestamp::MIN)
}

/// Ids grow with time: the first that a usage row of the span may have.
pub(crate) fn first_unpriced(now: Timestamp) -> Uuid {
    let since = now.checked_sub(UNPRICED_SPAN).unwrap_or(Timestamp::UNIX_EPOCH);
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(since.as_millisecond()).unwrap_or(0), &[0; 10]).into_uuid()
}

pub(crate) const OUTBOX_COUNTS: &str = "SELECT status, count(*) FROM outbox GROUP BY status ORDER BY status";
pub(crate) const WAITING: &str = "SELECT (SELECT count(*) FROM approvals WHERE status = 'pending'),
      (SELECT count(*) FROM turns WHERE finished_at IS NULL),
      (SELECT count(*) FROM turns WHERE finished_at IS NULL AND status = 'accepted')";
