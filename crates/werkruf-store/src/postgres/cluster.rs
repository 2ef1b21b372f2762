//! [`Cluster`] on PostgreSQL.

use std::time::Duration;

use tokio_postgres::types::Type;
use werkruf_contract::{BoxFuture, Uuid};

use super::PostgresStore;
use super::flush::DbRole;
use super::param::p;
use super::row::{all, only};
use super::text::clean;
use crate::{CLAIM_WINDOW, Cluster, LeaseReport, READ_MARK, StoreFuture, StreamPosition, TokenGrant};

/// Of the partial text only a digest is read.
const POSITIONS: &str = "SELECT leases.conversation_id, leases.next_event_seq, current.mark, coalesce(waiting.turns, '{}')
    FROM leases LEFT JOIN LATERAL (
      SELECT turns.id || '/' || turns.step || '/' || hashtextextended(turns.partial, 0) AS mark FROM turns
      WHERE turns.tenant_id = $1 AND turns.conversation_id = leases.conversation_id AND turns.finished_at IS NULL
        AND turns.partial IS NOT NULL ORDER BY turns.id DESC LIMIT 1
    ) AS current ON true LEFT JOIN (
      SELECT coalesce(conversation_id, id) AS stream_id, array_agg(id) AS turns FROM turns
      WHERE tenant_id = $1 AND id = ANY ($3) AND status = 'awaiting_approval' GROUP BY 1
    ) AS waiting ON waiting.stream_id = leases.conversation_id
    WHERE leases.tenant_id = $1 AND leases.conversation_id = ANY ($2)";

/// The sum may exceed what there is: what an earlier process took decides how much of this block counts. A statement that waited for the row may
/// find the next minute there, and stays in it. A later minute comes from a clock that was set back, and does not count.
const TAKE: &str = "INSERT INTO rate_windows AS known (tenant_id, subject, window_start, taken)
    VALUES ($1, $2, date_trunc('minute', clock_timestamp()), $3)
    ON CONFLICT (tenant_id, subject) DO UPDATE SET
      window_start = CASE WHEN known.window_start - excluded.window_start BETWEEN interval '0' AND interval '1 minute'
        THEN known.window_start ELSE excluded.window_start END,
      taken = CASE WHEN known.window_start - excluded.window_start BETWEEN interval '0' AND interval '1 minute'
        THEN known.taken ELSE 0 END + excluded.taken
    RETURNING taken, (extract(epoch FROM window_start + interval '1 minute' - clock_timestamp()) * 1000)::bigint";

/// Rows that are being written are left out: a mark must never wait for a turn, nor two marks for each other. Conversations at rest are not marked.
const MARK_READ: &str = "UPDATE leases SET read_until = clock_timestamp() + make_interval(secs => $3) FROM (
      SELECT known.conversation_id FROM leases AS known WHERE known.tenant_id = $1 AND known.conversation_id = ANY ($2)
        AND EXISTS (SELECT FROM turns WHERE turns.tenant_id = $1 AND turns.conversation_id = known.conversation_id AND turns.finished_at IS NULL)
      FOR NO KEY UPDATE SKIP LOCKED
    ) AS free WHERE leases.tenant_id = $1 AND leases.conversation_id = free.conversation_id";

impl Cluster for PostgresStore {
    fn lease_ttl(&self) -> Option<Duration> {
        Some(self.options.lease_ttl)
    }

    fn renew_leases(&self, owner: String) -> StoreFuture<'_, LeaseReport> {
        Box::pin(async move { self.renew_all(&owner).await })
    }

    fn pending_cancels(&self, owner: String) -> StoreFuture<'_, LeaseReport> {
        Box::pin(async move { self.cancel_requests_of(&owner).await })
    }

    fn claim_key(&self, tenant_id: Uuid, dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, Uuid> {
        let sql = "SELECT claim_dedupe_key($1, $2, $3, make_interval(secs => $4))";
        Box::pin(async move {
            let window = CLAIM_WINDOW.as_secs_f64();
            let key = dedupe_key.as_str();
            let values = [p(&tenant_id), p(&key), p(&call_id), (&window as _, Type::FLOAT8)];
            only(&self.query(DbRole::Tenant(tenant_id), sql, &values).await?, |columns| columns.id())
        })
    }

    fn release_key(&self, tenant_id: Uuid, dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, ()> {
        let sql = "DELETE FROM dedupe_claims WHERE tenant_id = $1 AND dedupe_key = $2 AND call_id = $3";
        Box::pin(async move {
            let key = dedupe_key.as_str();
            self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&key), p(&call_id)]).await.map(|_| ())
        })
    }

    fn take_tokens(&self, tenant_id: Uuid, subject: String, wanted: u32, per_minute: u32) -> StoreFuture<'_, Option<TokenGrant>> {
        Box::pin(async move {
            let (subject, wanted_tokens) = (clean(&subject), i64::from(wanted));
            let rows = self.query(DbRole::Tenant(tenant_id), TAKE, &[p(&tenant_id), p(&subject), p(&wanted_tokens)]).await?;
            let (taken, left_ms) = only(&rows, |columns| Ok((columns.int()?, columns.int()?)))?;
            let granted = (i64::from(per_minute) - (taken - wanted_tokens)).clamp(0, wanted_tokens);
            let valid = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0).max(1));
            Ok(Some(TokenGrant { granted: u32::try_from(granted).unwrap_or(0), valid }))
        })
    }

    fn request_call_cancel(&self, tenant_id: Uuid, call_id: Uuid) -> StoreFuture<'_, bool> {
        let sql = "UPDATE tool_calls SET cancel_requested = true WHERE tenant_id = $1 AND id = $2 AND status IN ('queued', 'running')
                   RETURNING true";
        Box::pin(async move { Ok(self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&call_id)]).await?.len() == 1) })
    }

    fn stream_positions(&self, tenant_id: Uuid, streams: Vec<Uuid>, turns: Vec<Uuid>) -> StoreFuture<'_, Vec<StreamPosition>> {
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), POSITIONS, &[p(&tenant_id), p(&streams), p(&turns)]).await?;
            all(&rows, |columns| {
                let (stream_id, next_event_seq) = (columns.id()?, columns.int()?);
                Ok(StreamPosition { stream_id, next_event_seq, partial: columns.text_or_null()?, waiting: columns.ids()? })
            })
        })
    }

    fn mark_read(&self, tenant_id: Uuid, streams: Vec<Uuid>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let valid = READ_MARK.as_secs_f64();
            let values = [p(&tenant_id), p(&streams), (&valid as _, Type::FLOAT8)];
            // Any number of rows is right: streams without a turn at work have no mark.
            self.query(DbRole::Tenant(tenant_id), MARK_READ, &values).await.map(|_| ())
        })
    }

    fn is_read(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, bool> {
        let sql = "SELECT true FROM leases WHERE tenant_id = $1 AND conversation_id = $2 AND read_until > clock_timestamp()";
        Box::pin(async move { Ok(self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&stream_id)]).await?.len() == 1) })
    }

    fn notify(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
    }

    fn notified(&self) -> BoxFuture<'_, ()> {
        match &self.notifier {
            Some(notifier) => Box::pin(notifier.notified()),
            None => Box::pin(std::future::pending()),
        }
    }
}
