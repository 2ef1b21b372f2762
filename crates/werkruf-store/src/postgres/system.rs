//! Operations over all tenants, which therefore run as `werkruf_system`: turns that no process is running, leases, expired approvals, old
//! events. Their results go to the process, never to a client.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::{self, Columns, all, only};
use super::text::clean;
use crate::{DeletedEvents, LeaseReport, NewPartial, StoreError, StreamKey, TurnRow, crash};

/// Turns that one scan returns. Turns that this process holds come last: it is nearly always running them.
const SCAN_LIMIT: i64 = 2_000;

/// A turn that awaits approval is left out until one of its calls is decided; where the provider runs that call, until each is. Tenants
/// alternate, oldest turn first.
fn unfinished_sql() -> String {
    format!(
        "SELECT {} FROM (
           SELECT turns.*, coalesce(leases.owner = $1, false) AS mine,
             row_number() OVER (PARTITION BY turns.tenant_id, coalesce(leases.owner = $1, false) ORDER BY turns.id) AS place
           FROM turns LEFT JOIN leases ON leases.tenant_id = turns.tenant_id
             AND leases.conversation_id = coalesce(turns.conversation_id, turns.id)
           WHERE turns.finished_at IS NULL
             AND (leases.owner IS NULL OR leases.owner IN ($1, '') OR leases.expires_at <= clock_timestamp())
             AND (turns.status <> 'awaiting_approval' OR turns.cancel_requested OR EXISTS
               (SELECT 1 FROM approvals JOIN tool_calls ON tool_calls.tenant_id = approvals.tenant_id AND tool_calls.id = approvals.call_id
                  WHERE approvals.tenant_id = turns.tenant_id AND approvals.turn_id = turns.id AND approvals.status <> 'pending'
                    AND tool_calls.status = 'queued' AND (tool_calls.runner <> 'provider' OR NOT EXISTS
                      (SELECT 1 FROM approvals AS others WHERE others.tenant_id = turns.tenant_id AND others.turn_id = turns.id
                         AND others.status = 'pending'))))
         ) AS unfinished ORDER BY mine, place, id LIMIT $2",
        row::TURN
    )
}

/// Found through the running turns, which are few; locked in one order, so that two batches never deadlock.
const RENEW: &str = "WITH mine AS (
      SELECT leases.tenant_id, leases.conversation_id, turns.id AS turn_id, turns.cancel_requested
      FROM turns JOIN leases ON leases.tenant_id = turns.tenant_id AND leases.conversation_id = coalesce(turns.conversation_id, turns.id)
      WHERE turns.finished_at IS NULL AND turns.status NOT IN ('accepted', 'awaiting_approval') AND leases.owner = $1
      ORDER BY leases.tenant_id, leases.conversation_id FOR UPDATE OF leases
    ), renewed AS (
      UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => $2) FROM mine
      WHERE leases.tenant_id = mine.tenant_id AND leases.conversation_id = mine.conversation_id
      RETURNING leases.tenant_id, leases.conversation_id, leases.epoch, mine.turn_id, mine.cancel_requested
    )
    SELECT tenant_id, conversation_id, epoch, CASE WHEN cancel_requested THEN turn_id END,
      ARRAY(SELECT tool_calls.id FROM tool_calls WHERE tool_calls.tenant_id = renewed.tenant_id AND tool_calls.turn_id = renewed.turn_id
        AND tool_calls.cancel_requested AND tool_calls.finished_at IS NULL)
    FROM renewed";

/// The same rows, without renewing and without waiting for a lock.
const CANCEL_REQUESTS: &str =
    "SELECT leases.tenant_id, leases.conversation_id, leases.epoch, CASE WHEN turns.cancel_requested THEN turns.id END,
      ARRAY(SELECT tool_calls.id FROM tool_calls WHERE tool_calls.tenant_id = turns.tenant_id AND tool_calls.turn_id = turns.id
        AND tool_calls.cancel_requested AND tool_calls.finished_at IS NULL)
    FROM turns JOIN leases ON leases.tenant_id = turns.tenant_id AND leases.conversation_id = coalesce(turns.conversation_id, turns.id)
    WHERE turns.finished_at IS NULL AND turns.status NOT IN ('accepted', 'awaiting_approval') AND leases.owner = $1";

/// Renews the leases and stores the texts under them; a text whose lease or step has changed is left out.
const PUT_PARTIALS: &str = "WITH given AS (
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7) AS s (tenant_id, stream_id, owner, epoch, turn_id, step, content)
    ), held AS (
      SELECT leases.tenant_id, leases.conversation_id FROM leases JOIN given ON leases.tenant_id = given.tenant_id
        AND leases.conversation_id = given.stream_id AND leases.owner = given.owner AND leases.epoch = given.epoch
      ORDER BY leases.tenant_id, leases.conversation_id FOR UPDATE OF leases
    ), renewed AS (
      UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => $8) FROM held
      WHERE leases.tenant_id = held.tenant_id AND leases.conversation_id = held.conversation_id
      RETURNING leases.tenant_id, leases.conversation_id, leases.owner, leases.epoch
    ), stored AS (
      UPDATE turns SET partial = given.content FROM given JOIN renewed ON renewed.tenant_id = given.tenant_id
        AND renewed.conversation_id = given.stream_id AND renewed.owner = given.owner AND renewed.epoch = given.epoch
      WHERE turns.tenant_id = given.tenant_id AND turns.id = given.turn_id AND turns.step + 1 = given.step AND turns.finished_at IS NULL
      RETURNING 1
    )
    SELECT count(*) FROM stored";

impl PostgresStore {
    pub(super) async fn unfinished(&self, owner: &str) -> Result<Vec<TurnRow>, StoreError> {
        all(&self.query(DbRole::System, &unfinished_sql(), &[p(&clean(owner)), p(&SCAN_LIMIT)]).await?, row::turn)
    }

    pub(super) async fn renew_all(&self, owner: &str) -> Result<LeaseReport, StoreError> {
        lease_report(&self.query(DbRole::System, RENEW, &[p(&clean(owner)), (&self.ttl, Type::FLOAT8)]).await?)
    }

    pub(super) async fn cancel_requests_of(&self, owner: &str) -> Result<LeaseReport, StoreError> {
        lease_report(&self.query(DbRole::System, CANCEL_REQUESTS, &[p(&clean(owner))]).await?)
    }

    pub(super) async fn put_partials(&self, partials: &[NewPartial]) -> Result<usize, StoreError> {
        if partials.is_empty() {
            return Ok(0);
        }
        let of = |read: fn(&NewPartial) -> Uuid| partials.iter().map(read).collect::<Vec<_>>();
        let (tenants, streams, turns) = (of(|p| p.fence.tenant_id), of(|p| p.fence.stream_id), of(|p| p.turn_id));
        let owners: Vec<_> = partials.iter().map(|partial| clean(&partial.fence.owner)).collect();
        let epochs: Vec<_> = partials.iter().map(|partial| partial.fence.epoch).collect();
        let steps: Vec<_> = partials.iter().map(|partial| i64::from(partial.step)).collect();
        let texts: Vec<_> = partials.iter().map(|partial| clean(&partial.content)).collect();
        let values = [
            p(&tenants),
            p(&streams),
            (&owners as _, Type::TEXT_ARRAY),
            (&epochs as _, Type::INT8_ARRAY),
            p(&turns),
            (&steps as _, Type::INT8_ARRAY),
            (&texts as _, Type::TEXT_ARRAY),
            (&self.ttl as _, Type::FLOAT8),
        ];
        let rows = self.query(DbRole::System, PUT_PARTIALS, &values).await?;
        crash::point("inside_partial");
        only(&rows, |columns| columns.int()).map(|stored| usize::try_from(stored).unwrap_or(0))
    }

    pub(super) async fn delete_old_events(&self, before: Timestamp, after: Option<StreamKey>) -> Result<DeletedEvents, StoreError> {
        let sql = "SELECT * FROM delete_events($1, $2, $3)";
        let (tenant, stream) = (after.map(|key| key.tenant_id), after.map(|key| key.stream_id));
        self.with(DbRole::System, move |transaction| {
            Box::pin(async move {
                let rows = transaction.query(sql, &[p(&ms(before)), p(&tenant), p(&stream)]).await?;
                crash::point("inside_retention");
                Ok(only(&rows, |columns| {
                    let events = usize::try_from(columns.int()?).unwrap_or(0);
                    let next = columns.id_or_null()?.zip(columns.id_or_null()?);
                    Ok(DeletedEvents { events, next: next.map(|(tenant_id, stream_id)| StreamKey { tenant_id, stream_id }) })
                })?)
            })
        })
        .await
    }

    pub(super) async fn expire(&self, now: Timestamp) -> Result<u64, StoreError> {
        let sql = "WITH expired AS (UPDATE approvals SET status = 'expired', decided_at = $1 WHERE status = 'pending' AND expires_at <= $1
                   RETURNING 1) SELECT count(*) FROM expired";
        let rows = self.query(DbRole::System, sql, &[p(&ms(now))]).await?;
        only(&rows, |columns| columns.int()).map(|expired| u64::try_from(expired).unwrap_or(0))
    }
}

fn lease_report(rows: &[Row]) -> Result<LeaseReport, StoreError> {
    let mut report = LeaseReport::default();
    for row in rows {
        let mut columns = Columns::new(row);
        report.held.push((StreamKey { tenant_id: columns.id()?, stream_id: columns.id()? }, columns.int()?));
        report.canceled_turns.extend(columns.id_or_null()?);
        report.canceled_calls.extend(columns.ids()?);
    }
    Ok(report)
}
