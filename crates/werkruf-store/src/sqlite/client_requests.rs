//! [`ClientRequests`] on SQLite, and what opening a turn does with a client's results.

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{Columns, all, first};
use super::text::Id;
use crate::{ClientRequests, JsonText, OpenTurn, ResumePoint, StoreError, StoreFuture};

impl ClientRequests for SqliteStore {
    fn client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, Option<JsonText>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached("SELECT client FROM turns WHERE tenant_id = ?1 AND id = ?2")?;
            Ok(first(&mut statement, params![Id::from(tenant_id), Id::from(turn_id)], |columns| columns.text_or_null())?.flatten())
        }))
    }

    fn first_client_request(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement =
                c.prepare_cached("SELECT client FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 ORDER BY id LIMIT 1")?;
            Ok(first(&mut statement, params![Id::from(tenant_id), Id::from(conversation_id)], |columns| columns.text_or_null())?.flatten())
        }))
    }

    fn conversation_by_digest(&self, tenant_id: Uuid, user_id: String, seen: String) -> StoreFuture<'_, Option<ResumePoint>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(SEEN)?;
            first(&mut statement, params![Id::from(tenant_id), user_id, seen], resumed)
        }))
    }

    fn conversation_awaiting(&self, tenant_id: Uuid, user_id: String, call_ids: Vec<String>) -> StoreFuture<'_, Option<ResumePoint>> {
        Box::pin(self.readers.look_up(move |c| {
            let ids = serde_json::to_string(&call_ids).map_err(|error| StoreError::Broken(error.to_string()))?;
            let mut statement = c.prepare_cached(
                "SELECT messages.conversation_id, max(turns.id) FROM messages
                   JOIN turns ON turns.tenant_id = messages.tenant_id AND turns.id = messages.turn_id
                 WHERE messages.tenant_id = ?1 AND messages.status = 'pending' AND turns.user_id = ?2 AND turns.finished_at IS NOT NULL
                   AND messages.tool_call_id IN (SELECT value FROM json_each(?3))
                 GROUP BY messages.conversation_id LIMIT 2",
            )?;
            let mut found = all(&mut statement, params![Id::from(tenant_id), user_id, ids], resumed)?;
            // Ids such as call_0 come again in other conversations: two that wait are none that is meant.
            Ok(found.pop().filter(|_| found.is_empty()))
        }))
    }

    fn turn_by_request_digest(&self, tenant_id: Uuid, user_id: String, sent: String) -> StoreFuture<'_, Option<ResumePoint>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(REPEATED)?;
            first(&mut statement, params![Id::from(tenant_id), user_id, sent], resumed)
        }))
    }

    fn put_transcript_digest(&self, tenant_id: Uuid, turn_id: Uuid, seen: String) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let noted = c
                .prepare_cached("UPDATE turns SET seen = ?3 WHERE tenant_id = ?1 AND id = ?2 AND seen IS NULL")?
                .execute(params![Id::from(tenant_id), Id::from(turn_id), seen])?;
            Ok(noted == 1)
        }))
    }

    fn withdraw_client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let mut statement = c.prepare_cached(
                "UPDATE turns SET client = json_set(client, '$.door.deleted', json('true'))
                 WHERE tenant_id = ?1 AND id = ?2 AND json_type(client, '$.door') = 'object'",
            )?;
            Ok(statement.execute(params![Id::from(tenant_id), Id::from(turn_id)])? == 1)
        }))
    }
}

// The plus signs keep both off the index by id: the few rows that match are sorted, where walking back from the newest turn of all
// would go through every turn of the tenant when there is none.

/// Who has gone on from there meanwhile would branch off: only the newest turn counts.
const SEEN: &str = "SELECT conversation_id, id FROM turns AS own WHERE tenant_id = ?1 AND user_id = ?2 AND seen = ?3
      AND conversation_id IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM turns WHERE tenant_id = ?1 AND conversation_id = own.conversation_id AND id > own.id)
    ORDER BY +id DESC LIMIT 1";

const REPEATED: &str = "SELECT conversation_id, id FROM turns WHERE tenant_id = ?1 AND user_id = ?2 AND sent = ?3
      AND conversation_id IS NOT NULL ORDER BY +id DESC LIMIT 1";

fn resumed(columns: &mut Columns<'_>) -> Result<ResumePoint, StoreError> {
    Ok(ResumePoint { conversation_id: columns.id()?, turn_id: columns.id()? })
}

/// The newest turn of a conversation.
pub(super) fn newest(c: &Connection, tenant: &Id, conversation: &Id) -> Result<Option<Uuid>, StoreError> {
    let mut statement = c.prepare_cached("SELECT id FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 ORDER BY id DESC LIMIT 1")?;
    first(&mut statement, params![tenant, conversation], |columns| columns.id())
}

/// The results a client sends take their places; what it leaves unanswered is canceled. Only turns that have ended wait for
/// a client, so no running turn's rows are touched.
pub(super) fn settle(c: &Connection, tenant: &Id, conversation: &Id, open: &OpenTurn) -> Result<(), StoreError> {
    let Some(unanswered) = &open.unanswered else { return Ok(()) };
    let mut waiting = c.prepare_cached("SELECT EXISTS (SELECT 1 FROM messages WHERE conversation_id = ?1 AND status = 'pending')")?;
    if first(&mut waiting, params![conversation], |columns| columns.flag())? != Some(true) {
        return Ok(());
    }
    let ended = "turn_id IN (SELECT id FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 AND finished_at IS NOT NULL)";
    let mut answer = c.prepare_cached(&format!(
        "UPDATE messages SET content = ?4, status = ?5, tokens = NULL WHERE tenant_id = ?1 AND conversation_id = ?2 AND tool_call_id = ?3
           AND status = 'pending' AND {ended}"
    ))?;
    for result in &open.results {
        // A result for nothing that waits is left out: it was canceled before, or never asked for.
        answer.execute(params![tenant, conversation, result.tool_call_id, result.content, result.status])?;
    }
    c.prepare_cached(&format!(
        "UPDATE messages SET content = ?3, status = 'error', tokens = NULL WHERE tenant_id = ?1 AND conversation_id = ?2 AND status = 'pending' AND {ended}"
    ))?
    .execute(params![tenant, conversation, unanswered])?;
    Ok(())
}

/// The statements whose plan a test looks at.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    [SEEN, REPEATED].map(str::to_owned).to_vec()
}
