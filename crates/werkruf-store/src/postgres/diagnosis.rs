//! [`Diagnostics`] on PostgreSQL, for an open store and for a database without one.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use tokio_postgres::Row;
use werkruf_contract::{Clock, Uuid};

use super::flush::{DbRole, Statement};
use super::param::{ms, p};
use super::row::{self, all, first, only};
use super::{PostgresOptions, PostgresStore};
use crate::diagnosis::{OUTBOX_COUNTS, WAITING, first_unpriced, stuck_before};
use crate::{Counts, DatabaseConnections, Diagnosis, Diagnostics, Measurements, Modules, RowCounts, StoreError, StoreFuture};

const SIZE: &str = "SELECT pg_database_size(current_database())";
const STUCK: &str = "SELECT count(*), (array_agg(id ORDER BY id))[1] FROM turns
    WHERE finished_at IS NULL AND status <> 'awaiting_approval' AND updated_at < $1";
const UNPRICED: &str = "SELECT model, count(*) FROM api_usage WHERE id >= $1 AND cost_nano_usd IS NULL AND tokens_total > 0
    GROUP BY model ORDER BY count(*) DESC, model LIMIT 20";
/// Faults are counted only where the cluster was made with checksums.
const SERVER: &str = "SELECT current_setting('server_version'), clock_timestamp(),
    (SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database())";

const ROW_COUNTS: &str = "SELECT (SELECT count(*) FROM tenants), (SELECT count(*) FROM users), (SELECT count(*) FROM api_keys),
      (SELECT count(*) FROM conversations), (SELECT count(*) FROM turns WHERE finished_at IS NULL),
      (SELECT count(*) FROM approvals WHERE status = 'pending'), (SELECT count(*) FROM tool_calls WHERE id >= $1),
      (SELECT count(*) FROM tool_calls WHERE id >= $1 AND status IN ('failed', 'timeout'))";

impl Diagnostics for PostgresStore {
    fn measurements(&self) -> StoreFuture<'_, Measurements> {
        Box::pin(async move {
            let statements = [OUTBOX_COUNTS, WAITING, SIZE].map(|sql| Statement { sql, params: &[] });
            measurements(&self.run(DbRole::System, &statements).await?)
        })
    }

    fn diagnose(&self, now: Timestamp) -> StoreFuture<'_, Diagnosis> {
        Box::pin(async move {
            let (stuck, first) = (ms(stuck_before(now)), first_unpriced(now));
            let statements = [
                Statement { sql: OUTBOX_COUNTS, params: &[] },
                Statement { sql: WAITING, params: &[] },
                Statement { sql: SIZE, params: &[] },
                Statement { sql: STUCK, params: &[p(&stuck)] },
                Statement { sql: UNPRICED, params: &[p(&first)] },
                Statement { sql: SERVER, params: &[] },
            ];
            let rows = self.run(DbRole::System, &statements).await?;
            let (version, now, failures) =
                only(rows_of(&rows, 5), |columns| Ok((columns.text()?, columns.time()?, columns.int_or_null()?)))?;
            let (stuck_turns, stuck_turn) = only(rows_of(&rows, 3), |columns| Ok((columns.int()?, columns.id_or_null()?)))?;
            let failures = failures.filter(|failures| *failures > 0);
            Ok(Diagnosis {
                measurements: measurements(&rows)?,
                version: format!("PostgreSQL {version}"),
                now: Some(now),
                damage: failures.map(|failures| format!("{failures} pages had a wrong checksum")).into_iter().collect(),
                stuck_turns,
                stuck_turn,
                unpriced: all(rows_of(&rows, 4), |columns| Ok((columns.text()?, columns.int()?)))?,
            })
        })
    }

    fn connections(&self) -> DatabaseConnections {
        let status = self.pool.status();
        DatabaseConnections { open: status.size, idle: status.available, waiting: status.waiting }
    }

    fn row_counts(&self, first_recent: Uuid) -> StoreFuture<'_, RowCounts> {
        Box::pin(async move {
            Ok(first(&self.query(DbRole::System, ROW_COUNTS, &[p(&first_recent)]).await?, row::row_counts)?.unwrap_or_default())
        })
    }

    fn counts(&self) -> Counts {
        let commits = self.commits.load(Ordering::Relaxed);
        // Only the database knows how many rows each of them wrote.
        Counts { commits, groups: commits, row_writes: 0 }
    }
}

impl PostgresStore {
    /// Looks at a database; changes nothing. It must have this binary's schema.
    pub async fn diagnose_at(options: PostgresOptions, clock: &Clock, modules: Modules) -> Result<Diagnosis, StoreError> {
        let store = Self::unmigrated(options, clock, modules)?;
        store.diagnose(clock.now()).await
    }
}

fn rows_of(rows: &[Vec<Row>], statement: usize) -> &[Row] {
    rows.get(statement).map_or(&[], Vec::as_slice)
}

fn measurements(rows: &[Vec<Row>]) -> Result<Measurements, StoreError> {
    let outbox = all(rows_of(rows, 0), |columns| Ok((columns.text()?, columns.int()?)))?;
    let (pending_approvals, open_turns, waiting_turns) =
        only(rows_of(rows, 1), |columns| Ok((columns.int()?, columns.int()?, columns.int()?)))?;
    let size_bytes = only(rows_of(rows, 2), |columns| columns.int())?;
    Ok(Measurements { outbox, pending_approvals, open_turns, waiting_turns, size_bytes })
}
