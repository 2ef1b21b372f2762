//! [`Turns`] on PostgreSQL.

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::{State, Uuid};

use super::PostgresStore;
use super::flush::DbRole;
use super::outbox::OutboxItem;
use super::param::{ms, p};
use super::row::{self, all, first, only};
use super::text::{clean, clean_json};
use super::turn_documents::{Event, document};
use crate::{
    Fence, InboxEntry, MessageRow, OpenTurn, Opened, Reusable, StoreFuture, Summary, TurnCancellation, TurnRow, TurnWrite, Turns, Written,
    crash,
};

impl Turns for PostgresStore {
    fn open_turn(&self, open: OpenTurn) -> StoreFuture<'_, Opened> {
        Box::pin(async move { self.accept(&open).await })
    }

    fn known_copy(&self, tenant_id: Uuid, entry: InboxEntry, now: Timestamp) -> StoreFuture<'_, Option<(Uuid, bool)>> {
        let sql = "SELECT turn_id, fingerprint FROM inbox WHERE tenant_id = $1 AND channel = $2 AND account = $3 AND external_id = $4
                   AND expires_at > $5 AND turn_id IS NOT NULL";
        Box::pin(async move {
            let (channel, account, external_id) = (clean(&entry.channel), clean(&entry.account), clean(&entry.external_id));
            let now = ms(now);
            let values = [p(&tenant_id), p(&channel), p(&account), p(&external_id), p(&now)];
            first(&self.query(DbRole::Tenant(tenant_id), sql, &values).await?, |columns| {
                Ok((columns.id()?, columns.text()? == entry.fingerprint))
            })
        })
    }

    fn start_turn(&self, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: Timestamp) -> StoreFuture<'_, Fence> {
        let owner = owner.to_owned();
        Box::pin(async move { self.start(tenant_id, turn_id, &owner, now).await })
    }

    fn write(&self, write: TurnWrite) -> StoreFuture<'_, Written> {
        Box::pin(async move { self.put_turn(&write).await })
    }

    fn request_cancel(&self, tenant_id: Uuid, turn_id: Uuid, now: Timestamp) -> StoreFuture<'_, bool> {
        let sql = "UPDATE turns SET cancel_requested = true, updated_at = $3
                   WHERE tenant_id = $1 AND id = $2 AND status NOT IN ('completed', 'failed', 'canceled') RETURNING true";
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&turn_id), p(&ms(now))]).await?;
            Ok(rows.len() == 1)
        })
    }

    fn cancel_waiting(&self, tenant_id: Uuid, turn_id: Uuid, cancellation: TurnCancellation) -> StoreFuture<'_, Option<i64>> {
        let sql = "SELECT cancel_waiting($1, $2, $3, $4, $5::text::jsonb, $6::text::jsonb, $7, $8)";
        Box::pin(async move {
            let event = document(&[Event::from(&cancellation.event)])?;
            let outbox = document(&cancellation.outbox.iter().map(OutboxItem::from).collect::<Vec<_>>())?;
            let (error, code, now) = (clean_json(&cancellation.error), clean(&cancellation.error_code), ms(cancellation.at));
            let values = [p(&tenant_id), p(&turn_id), p(&error), p(&code), (&event, Type::TEXT), (&outbox, Type::TEXT), p(&now)];
            let rows = self.query_once(DbRole::Tenant(tenant_id), sql, &values).await?;
            crash::point("inside_cancel");
            only(&rows, |columns| columns.int_or_null())
        })
    }

    fn patch_state(
        &self,
        tenant_id: Uuid,
        conversation_id: Uuid,
        patch: State,
        max_bytes: usize,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<State>> {
        let sql = "SELECT patch_state($1, $2, $3::text::jsonb, $4, $5)";
        Box::pin(async move {
            let (patches, max_bytes, now) = (document(&[patch])?, i64::try_from(max_bytes).unwrap_or(i64::MAX), ms(now));
            let values = [p(&tenant_id), p(&conversation_id), (&patches, Type::TEXT), p(&max_bytes), p(&now)];
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &values).await?;
            only(&rows, |columns| columns.state_or_null())
        })
    }

    fn history(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Vec<MessageRow>> {
        Box::pin(async move {
            let sql = format!(
                "SELECT {} FROM messages WHERE tenant_id = $1 AND conversation_id = $2 AND seq IS NOT NULL ORDER BY seq",
                row::MESSAGE
            );
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&conversation_id)]).await?, row::message)
        })
    }

    fn taken_call_ids(&self, tenant_id: Uuid, conversation_id: Uuid, ids: Vec<String>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async move {
            let candidates: Vec<_> = ids.iter().map(|id| clean(id)).collect();
            let values = [p(&tenant_id), p(&conversation_id), (&candidates as _, Type::TEXT_ARRAY)];
            let taken = all(&self.query(DbRole::Tenant(tenant_id), TAKEN, &values).await?, |columns| columns.small())?;
            // Returned as the caller wrote them, not as they were cleaned.
            Ok(taken.into_iter().filter_map(|place| ids.get(usize::try_from(place).ok()?.checked_sub(1)?).cloned()).collect())
        })
    }

    fn reusable_call(&self, tenant_id: Uuid, conversation_id: Option<Uuid>, dedupe_key: String) -> StoreFuture<'_, Option<Reusable>> {
        Box::pin(async move {
            let key = clean(&dedupe_key);
            let values = [p(&tenant_id), p(&key), p(&conversation_id)];
            let rows = self.query(DbRole::Tenant(tenant_id), &reusable_sql(), &values).await?;
            first(&rows, |columns| Ok(Reusable { call: row::call(columns)?, stale: columns.flag()?, message_since: columns.flag()? }))
        })
    }

    fn unfinished_turns(&self, owner: String) -> StoreFuture<'_, Vec<TurnRow>> {
        Box::pin(async move { self.unfinished(&owner).await })
    }

    fn take_over(&self, tenant_id: Uuid, turn_id: Uuid, owner: String, _now: Timestamp) -> StoreFuture<'_, Fence> {
        let sql = "SELECT * FROM take_over($1, $2, $3, make_interval(secs => $4), $5)";
        Box::pin(async move {
            let name = clean(&owner);
            let values = [p(&tenant_id), p(&turn_id), p(&name), (&self.ttl, Type::FLOAT8)];
            let rows = self.query_once(DbRole::Tenant(tenant_id), sql, &values).await?;
            let (stream_id, epoch) = only(&rows, |columns| Ok((columns.id()?, columns.int()?)))?;
            Ok(Fence { tenant_id, stream_id, owner, epoch })
        })
    }

    fn release(&self, fence: Fence) -> StoreFuture<'_, ()> {
        let sql = "SELECT release_lease($1, $2, $3, $4, $5)::text";
        Box::pin(async move {
            let name = clean(&fence.owner);
            let values = [p(&fence.tenant_id), p(&fence.stream_id), p(&name), p(&fence.epoch)];
            self.query_once(DbRole::Tenant(fence.tenant_id), sql, &values).await.map(drop)
        })
    }

    fn summary(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<Summary>> {
        let sql = "SELECT summary_until, summary, summary_untrusted FROM conversations
                   WHERE tenant_id = $1 AND id = $2 AND summary IS NOT NULL AND summary_until IS NOT NULL";
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&conversation_id)]).await?;
            first(&rows, |columns| Ok(Summary { until: columns.int()?, text: columns.text()?, untrusted: columns.text_or_null()? }))
        })
    }

    fn delete_conversation(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, bool> {
        let sql = "SELECT delete_conversation($1, $2, $3)";
        Box::pin(async move {
            let rows = self.query_once(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&conversation_id)]).await?;
            only(&rows, |columns| columns.flag())
        })
    }
}

const TAKEN: &str = "SELECT candidates.n FROM unnest($3) WITH ORDINALITY AS candidates (id, n)
    WHERE EXISTS (SELECT 1 FROM messages WHERE tenant_id = $1 AND conversation_id = $2 AND tool_call_id = candidates.id)
    ORDER BY candidates.n";

/// The call, whether a call of the conversation has had an effect since, and whether the user has sent a message since an unknown outcome was known:
/// since the end of the turn, or since the turn stopped for an approval.
fn reusable_sql() -> String {
    format!(
        "SELECT {},
           EXISTS (SELECT 1 FROM tool_calls AS later WHERE later.tenant_id = $1 AND later.conversation_id = found.conversation_id
             AND later.effect <> 'read' AND later.finished_at IS NOT NULL AND later.finished_at >= found.created_at AND later.id <> found.id),
           CASE WHEN found.error_code = 'outcome_unknown' THEN message_since($1, found.conversation_id, found.turn_id, found.known_at) ELSE false END
         FROM (SELECT *, coalesce((SELECT coalesce(turns.finished_at, CASE turns.status WHEN 'awaiting_approval' THEN turns.updated_at ELSE 'infinity' END) FROM turns
             WHERE turns.tenant_id = $1 AND turns.id = tool_calls.turn_id), finished_at, created_at) AS known_at
           FROM tool_calls WHERE tenant_id = $1 AND dedupe_key = $2 AND conversation_id IS NOT DISTINCT FROM $3
           AND ((status = 'succeeded' AND dedupe_of IS NULL) OR error_code = 'outcome_unknown'
             OR (status = 'queued' AND EXISTS (SELECT 1 FROM approvals WHERE approvals.tenant_id = $1 AND approvals.call_id = tool_calls.id)))
         ORDER BY created_at DESC, id DESC LIMIT 1) AS found",
        row::CALL
    )
}
