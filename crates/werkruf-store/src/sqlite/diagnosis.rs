//! [`Diagnostics`] on SQLite, for an open store and for a file that no server has open.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{self, all, first};
use super::text::{Id, Stamp};
use crate::diagnosis::{OUTBOX_COUNTS, WAITING, first_unpriced, stuck_before};
use crate::{DatabaseConnections, Diagnosis, Diagnostics, Measurements, RowCounts, StoreError, StoreFuture};

const SIZE: &str = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
const STUCK: &str = "SELECT count(*), min(id) FROM turns WHERE finished_at IS NULL AND status <> 'awaiting_approval' AND updated_at < ?1";
const UNPRICED: &str = "SELECT model, count(*) FROM api_usage WHERE id >= ?1 AND cost_nano_usd IS NULL AND tokens_total > 0
    GROUP BY model ORDER BY count(*) DESC, model LIMIT 20";
/// More faults than these are not listed.
const QUICK_CHECK: &str = "PRAGMA quick_check(10)";

const ROW_COUNTS: &str = "SELECT (SELECT count(*) FROM tenants), (SELECT count(*) FROM users), (SELECT count(*) FROM api_keys),
      (SELECT count(*) FROM conversations), (SELECT count(*) FROM turns WHERE finished_at IS NULL),
      (SELECT count(*) FROM approvals WHERE status = 'pending'), (SELECT count(*) FROM tool_calls WHERE id >= ?1),
      (SELECT count(*) FROM tool_calls WHERE id >= ?1 AND status IN ('failed', 'timeout'))";

impl Diagnostics for SqliteStore {
    fn measurements(&self) -> StoreFuture<'_, Measurements> {
        Box::pin(self.readers.list(measurements))
    }

    fn diagnose(&self, now: Timestamp) -> StoreFuture<'_, Diagnosis> {
        let path = self.path.clone();
        Box::pin(async move {
            // A connection of its own: the check of all pages takes long, and the pool is small.
            let reading = tokio::task::spawn_blocking(move || Self::diagnose_file(&path, now));
            reading.await.map_err(|error| StoreError::Broken(format!("the diagnosis did not end: {error}")))?
        })
    }

    fn connections(&self) -> DatabaseConnections {
        // One more for the writer, which is always open.
        let (open, idle) = self.readers.count();
        DatabaseConnections { open: open + 1, idle, waiting: self.writer.waiting() }
    }

    fn row_counts(&self, first_recent: Uuid) -> StoreFuture<'_, RowCounts> {
        Box::pin(self.readers.list(move |c| {
            let mut statement = c.prepare_cached(ROW_COUNTS)?;
            Ok(first(&mut statement, params![Id::from(first_recent)], row::row_counts)?.unwrap_or_default())
        }))
    }

    fn counts(&self) -> crate::Counts {
        self.writer.counts()
    }
}

impl SqliteStore {
    /// Looks at a file, whether a server has it open or not; changes nothing. The file must have this binary's schema.
    pub fn diagnose_file(path: &Path, now: Timestamp) -> Result<Diagnosis, StoreError> {
        diagnose(&super::open::unchanged(path)?, now)
    }
}

fn measurements(c: &Connection) -> Result<Measurements, StoreError> {
    let outbox = all(&mut *c.prepare_cached(OUTBOX_COUNTS)?, [], |columns| Ok((columns.text()?, columns.int()?)))?;
    let counted = first(&mut *c.prepare_cached(WAITING)?, [], |columns| Ok((columns.int()?, columns.int()?, columns.int()?)))?;
    let (pending_approvals, open_turns, waiting_turns) = counted.unwrap_or_default();
    let size_bytes = first(&mut *c.prepare_cached(SIZE)?, [], |columns| columns.int())?.unwrap_or_default();
    Ok(Measurements { outbox, pending_approvals, open_turns, waiting_turns, size_bytes })
}

fn diagnose(c: &Connection, now: Timestamp) -> Result<Diagnosis, StoreError> {
    let mut damage = all(&mut c.prepare(QUICK_CHECK)?, [], |columns| columns.text())?;
    damage.retain(|line| line != "ok");
    let stuck = params![Stamp::from(stuck_before(now))];
    let (stuck_turns, stuck_turn) =
        first(&mut c.prepare(STUCK)?, stuck, |columns| Ok((columns.int()?, columns.id_or_null()?)))?.unwrap_or_default();
    let unpriced = params![Id::from(first_unpriced(now))];
    Ok(Diagnosis {
        measurements: measurements(c)?,
        version: format!("SQLite {}", rusqlite::version()),
        now: None,
        damage,
        stuck_turns,
        stuck_turn,
        unpriced: all(&mut c.prepare(UNPRICED)?, unpriced, |columns| Ok((columns.text()?, columns.int()?)))?,
    })
}
