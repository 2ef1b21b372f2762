//! [`Turns`] on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::{State, Uuid};

use super::row::{self, all, first};
use super::text::{Id, Stamp, id_or_null, stamp_or_null};
use super::{SqliteStore, takeover, turn_open, turn_write, waiting};
use crate::{
    CallRow, Fence, InboxEntry, MessageRow, OUTCOME_UNKNOWN, OpenTurn, Opened, Reusable, StoreError, StoreFuture, Summary,
    TurnCancellation, TurnRow, TurnWrite, Turns, Written,
};

impl Turns for SqliteStore {
    fn open_turn(&self, open: OpenTurn) -> StoreFuture<'_, Opened> {
        Box::pin(self.writer.submit_repeatable(move |c| turn_open::open(c, &open)))
    }

    fn known_copy(&self, tenant_id: Uuid, entry: InboxEntry, now: Timestamp) -> StoreFuture<'_, Option<(Uuid, bool)>> {
        Box::pin(self.readers.look_up(move |c| turn_open::known_copy(c, &Id::from(tenant_id), &entry, &Stamp::from(now))))
    }

    fn start_turn(&self, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: Timestamp) -> StoreFuture<'_, Fence> {
        let owner = owner.to_owned();
        Box::pin(self.writer.submit_repeatable(move |c| turn_open::start(c, tenant_id, turn_id, &owner, now)))
    }

    fn write(&self, write: TurnWrite) -> StoreFuture<'_, Written> {
        Box::pin(self.writer.submit_repeatable(move |c| turn_write::write(c, &write)))
    }

    fn request_cancel(&self, tenant_id: Uuid, turn_id: Uuid, now: Timestamp) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let requested = c
                .prepare_cached(
                    "UPDATE turns SET cancel_requested = 1, updated_at = ?3
                     WHERE tenant_id = ?1 AND id = ?2 AND status NOT IN ('completed', 'failed', 'canceled')",
                )?
                .execute(params![Id::from(tenant_id), Id::from(turn_id), Stamp::from(now)])?;
            Ok(requested == 1)
        }))
    }

    fn cancel_waiting(&self, tenant_id: Uuid, turn_id: Uuid, cancellation: TurnCancellation) -> StoreFuture<'_, Option<i64>> {
        Box::pin(self.writer.submit(move |c| waiting::cancel(c, tenant_id, turn_id, &cancellation)))
    }

    fn patch_state(
        &self,
        tenant_id: Uuid,
        conversation_id: Uuid,
        patch: State,
        max_bytes: usize,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<State>> {
        Box::pin(self.writer.submit(move |c| {
            turn_write::merge(c, &Id::from(tenant_id), conversation_id, std::slice::from_ref(&patch), max_bytes, &Stamp::from(now))
        }))
    }

    fn history(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Vec<MessageRow>> {
        // Read on this thread: most histories are short, and a switch to another thread costs more than the read.
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(&history_sql())?;
            let mut found = all(&mut statement, params![Id::from(tenant_id), Id::from(conversation_id)], row::message)?;
            found.sort_unstable_by_key(|message| message.seq);
            Ok(found)
        }))
    }

    fn taken_call_ids(&self, tenant_id: Uuid, conversation_id: Uuid, ids: Vec<String>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(self.readers.look_up(move |c| taken(c, tenant_id, conversation_id, ids)))
    }

    fn reusable_call(&self, tenant_id: Uuid, conversation_id: Option<Uuid>, dedupe_key: String) -> StoreFuture<'_, Option<Reusable>> {
        Box::pin(self.readers.look_up(move |c| reusable(c, tenant_id, conversation_id, &dedupe_key)))
    }

    fn summary(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<Summary>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(SUMMARY)?;
            first(&mut statement, params![Id::from(tenant_id), Id::from(conversation_id)], |columns| {
                Ok(Summary { until: columns.int()?, text: columns.text()?, untrusted: columns.text_or_null()? })
            })
        }))
    }

    fn unfinished_turns(&self, owner: String) -> StoreFuture<'_, Vec<TurnRow>> {
        Box::pin(self.readers.list(move |c| takeover::unfinished(c, &owner)))
    }

    fn take_over(&self, tenant_id: Uuid, turn_id: Uuid, owner: String, now: Timestamp) -> StoreFuture<'_, Fence> {
        Box::pin(self.writer.submit(move |c| takeover::take_over(c, tenant_id, turn_id, owner, now)))
    }

    fn release(&self, fence: Fence) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| takeover::release(c, &fence)))
    }

    fn delete_conversation(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| delete(c, &Id::from(tenant_id), &Id::from(conversation_id))))
    }
}

const TAKEN: &str = "SELECT EXISTS (SELECT 1 FROM messages WHERE conversation_id = ?2 AND tool_call_id = ?3 AND tenant_id = ?1)";

const SUMMARY: &str = "SELECT summary_until, summary, summary_untrusted FROM conversations
    WHERE tenant_id = ?1 AND id = ?2 AND summary IS NOT NULL AND summary_until IS NOT NULL";

/// A condition: the user has sent a message in another turn since the outcome of a call of `turn` was known. The values are SQL; ?1 is the tenant.
/// A message that was queued before answers nothing. Two times of one millisecond say nothing about their order; the events of the conversation do.
/// Any message counts: an import into a conversation that went on gives older ones higher numbers. The whole conversation may be read, so ask it only
/// for calls with an unknown outcome.
pub(super) fn message_since_sql(conversation: &str, turn: &str, known_at: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM messages WHERE conversation_id = {conversation} AND role = 'user' AND tenant_id = ?1
           AND messages.turn_id IS NOT {turn} AND (messages.created_at > {known_at} OR (messages.created_at = {known_at}
             AND (SELECT min(seq) FROM events WHERE conversation_id = {conversation} AND events.turn_id = messages.turn_id AND tenant_id = ?1)
               > (SELECT max(seq) FROM events WHERE conversation_id = {conversation} AND events.turn_id = {turn} AND tenant_id = ?1))))"
    )
}

fn since_sql() -> String {
    format!(
        "SELECT
           EXISTS (SELECT 1 FROM tool_calls WHERE conversation_id = ?2 AND effect <> 'read' AND finished_at IS NOT NULL
                     AND finished_at >= ?3 AND id <> ?4 AND tenant_id = ?1),
           CASE WHEN ?5 IS NULL THEN 0 ELSE {} END",
        message_since_sql("?2", "?6", "?5")
    )
}

/// When the user could know the outcome of a call: at the end of its turn, or when the turn stopped for an approval. NULL while the turn runs.
const KNOWN_AT: &str = "SELECT coalesce(finished_at, CASE status WHEN 'awaiting_approval' THEN updated_at END) FROM turns
    WHERE tenant_id = ?1 AND id = ?2";

/// The plus sign keeps the planner off the index on `seq`: the rows are clustered, and sorting them is cheaper than fetching each by index.
fn history_sql() -> String {
    format!("SELECT {} FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2 AND +seq IS NOT NULL", row::MESSAGE)
}

fn reusable_sql() -> String {
    format!(
        "SELECT {} FROM tool_calls WHERE conversation_id IS ?3 AND dedupe_key = ?2 AND tenant_id = ?1
           AND ((status = 'succeeded' AND dedupe_of IS NULL) OR error_code = 'outcome_unknown'
             OR (status = 'queued' AND EXISTS (SELECT 1 FROM approvals WHERE approvals.tenant_id = ?1 AND call_id = tool_calls.id)))
         ORDER BY created_at DESC, id DESC LIMIT 1",
        row::CALL
    )
}

fn taken(c: &Connection, tenant_id: Uuid, conversation_id: Uuid, ids: Vec<String>) -> Result<Vec<String>, StoreError> {
    let (tenant, conversation) = (Id::from(tenant_id), Id::from(conversation_id));
    let mut statement = c.prepare_cached(TAKEN)?;
    let mut taken = Vec::new();
    for id in ids {
        if first(&mut statement, params![tenant, conversation, id], |columns| columns.flag())? == Some(true) {
            taken.push(id);
        }
    }
    Ok(taken)
}

fn reusable(c: &Connection, tenant_id: Uuid, conversation_id: Option<Uuid>, dedupe_key: &str) -> Result<Option<Reusable>, StoreError> {
    let tenant = Id::from(tenant_id);
    let mut statement = c.prepare_cached(&reusable_sql())?;
    let Some(call) = first(&mut statement, params![tenant, dedupe_key, id_or_null(conversation_id)], row::call)? else { return Ok(None) };
    let (stale, message_since) = since(c, &tenant, &call)?;
    Ok(Some(Reusable { call, stale, message_since }))
}

/// Whether another call with an effect finished after the call, and whether the user sent a message after its unknown outcome was known.
fn since(c: &Connection, tenant: &Id, call: &CallRow) -> Result<(bool, bool), StoreError> {
    let Some(conversation) = id_or_null(call.conversation_id) else { return Ok((false, false)) };
    let mut statement = c.prepare_cached(KNOWN_AT)?;
    let of_turn = first(&mut statement, params![tenant, Id::from(call.turn_id)], |columns| columns.time_or_null())?;
    let is_unknown = call.error_code.as_deref() == Some(OUTCOME_UNKNOWN);
    let known_at = of_turn.unwrap_or(call.finished_at).filter(|_| is_unknown);
    let mut statement = c.prepare_cached(&since_sql())?;
    let turn = Id::from(call.turn_id);
    let values = params![tenant, conversation, Stamp::from(call.created_at), Id::from(call.id), stamp_or_null(known_at), turn];
    Ok(first(&mut statement, values, |columns| Ok((columns.flag()?, columns.flag()?)))?.unwrap_or((false, false)))
}

/// Children first, each by its own index. Rows of `api_usage` stay.
const DELETES: [&str; 11] = [
    "DELETE FROM inbox WHERE +tenant_id = ?1 AND turn_id IN (SELECT id FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2)",
    "DELETE FROM outbox WHERE tenant_id = ?1 AND conversation_id = ?2",
    "UPDATE contacts INDEXED BY contacts_by_conversation SET conversation_id = NULL WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM approvals WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM call_attempts WHERE tenant_id = ?1
       AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = ?1 AND conversation_id = ?2)",
    "DELETE FROM tool_calls WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM events WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM conversations WHERE tenant_id = ?1 AND id = ?2",
];

fn delete(c: &Connection, tenant: &Id, conversation: &Id) -> Result<bool, StoreError> {
    // A queued turn counts too, because between two turns the lease has no owner. A turn that waits for an approval is deleted.
    let mut statement = c.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 AND finished_at IS NULL
           AND status <> 'awaiting_approval')",
    )?;
    if first(&mut statement, params![tenant, conversation], |columns| columns.flag())? == Some(true) {
        return Err(StoreError::Busy);
    }
    let mut deleted = 0;
    for sql in DELETES {
        deleted = c.prepare_cached(sql)?.execute(params![tenant, conversation])?;
    }
    Ok(deleted == 1)
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let fixed = DELETES.iter().copied().chain([TAKEN, KNOWN_AT, SUMMARY]).map(str::to_owned);
    fixed.chain([history_sql(), reusable_sql(), since_sql()]).collect()
}
