//! [`Streams`] on PostgreSQL.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::p;
use super::row::{self, all, first, only};
use crate::{EventRow, NewPartial, PartialText, ReadLimit, StoreFuture, Streams};

impl Streams for PostgresStore {
    fn events(
        &self,
        tenant_id: Uuid,
        stream_id: Uuid,
        turn_id: Option<Uuid>,
        after: i64,
        limit: ReadLimit,
    ) -> StoreFuture<'_, Vec<EventRow>> {
        Box::pin(async move {
            let (sql, rows) = (events_sql(turn_id.is_some(), limit), i64::from(limit.rows));
            let values = [p(&tenant_id), p(&stream_id), p(&after), p(&rows), p(&turn_id)];
            let values = if turn_id.is_some() { &values[..] } else { &values[..4] };
            all(&self.query(DbRole::Tenant(tenant_id), &sql, values).await?, row::event)
        })
    }

    fn first_event(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, i64> {
        // A stream without events begins at its counter.
        let sql = "SELECT coalesce((SELECT min(seq) FROM events WHERE tenant_id = $1 AND conversation_id = $2),
                     (SELECT next_event_seq FROM leases WHERE tenant_id = $1 AND conversation_id = $2), 1)";
        Box::pin(async move {
            only(&self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&stream_id)]).await?, |columns| columns.int())
        })
    }

    fn partial(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, Option<PartialText>> {
        let sql = "SELECT id, step + 1, partial FROM turns WHERE tenant_id = $1 AND conversation_id = $2 AND finished_at IS NULL
                     AND partial IS NOT NULL ORDER BY id DESC LIMIT 1";
        Box::pin(async move {
            first(&self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&stream_id)]).await?, |columns| {
                Ok(PartialText { turn_id: columns.id()?, step: columns.small()?, content: columns.text()? })
            })
        })
    }

    fn save_partials(&self, partials: Vec<NewPartial>, _now: Timestamp) -> StoreFuture<'_, usize> {
        Box::pin(async move { self.put_partials(&partials).await })
    }
}

/// The database stops at the limit, so that no further row is sent.
fn events_sql(of_turn: bool, limit: ReadLimit) -> String {
    let only = if of_turn { "AND turn_id = $5" } else { "" };
    let next = format!("SELECT * FROM events WHERE tenant_id = $1 AND conversation_id = $2 AND seq > $3 {only} ORDER BY seq LIMIT $4");
    let (columns, most) = (row::EVENT, limit.bytes);
    if most == usize::MAX {
        return format!("SELECT {columns} FROM ({next}) AS next ORDER BY seq");
    }
    format!(
        "SELECT {columns} FROM (
           SELECT *, coalesce(sum(octet_length(data::text)) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
           FROM ({next}) AS next
         ) AS measured WHERE before < {most} OR before = 0 ORDER BY seq"
    )
}
