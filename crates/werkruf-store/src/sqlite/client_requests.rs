//! [`ClientRequests`] and [`ClientTurns`] on SQLite, and the handling of a client's results when a turn opens.

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{self, all, first};
use super::text::Id;
use crate::client_requests::SENT_TURNS;
use crate::{ClientRequests, ClientTurns, JsonText, OpenTurn, ResumePoint, SentTurn, StoreError, StoreFuture};

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
            let mut found = all(&mut statement, params![Id::from(tenant_id), user_id, ids], row::resume_point)?;
            // Ids such as call_0 repeat in other conversations: with two waiting conversations it is unclear which one is meant.
            Ok(found.pop().filter(|_| found.is_empty()))
        }))
    }
}

impl ClientTurns for SqliteStore {
    fn conversation_by_digest(&self, tenant_id: Uuid, user_id: String, transcript_digest: String) -> StoreFuture<'_, Option<ResumePoint>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(BY_TRANSCRIPT)?;
            first(&mut statement, params![Id::from(tenant_id), user_id, transcript_digest], row::resume_point)
        }))
    }

    fn turn_by_digest(&self, tenant_id: Uuid, user_id: String, transcript_digest: String) -> StoreFuture<'_, Option<ResumePoint>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(BY_EARLIER_TRANSCRIPT)?;
            first(&mut statement, params![Id::from(tenant_id), user_id, transcript_digest], row::resume_point)
        }))
    }

    fn turns_by_request_digest(&self, tenant_id: Uuid, user_id: String, request_digest: String) -> StoreFuture<'_, Vec<SentTurn>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(BY_REQUEST)?;
            all(&mut statement, params![Id::from(tenant_id), user_id, request_digest, SENT_TURNS], row::sent_turn)
        }))
    }

    fn put_transcript_digest(&self, tenant_id: Uuid, turn_id: Uuid, transcript_digest: String) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let written = c
                .prepare_cached("UPDATE turns SET transcript_digest = ?3 WHERE tenant_id = ?1 AND id = ?2 AND transcript_digest IS NULL")?
                .execute(params![Id::from(tenant_id), Id::from(turn_id), transcript_digest])?;
            Ok(written == 1)
        }))
    }

    fn withdraw_client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let mut statement = c.prepare_cached(
                "UPDATE turns SET client = json_set(client, '$.endpoint.deleted', json('true'))
                 WHERE tenant_id = ?1 AND id = ?2 AND json_type(client, '$.endpoint') = 'object'",
            )?;
            Ok(statement.execute(params![Id::from(tenant_id), Id::from(turn_id)])? == 1)
        }))
    }
}

// The plus signs keep the statements off the index on id: sorting the few rows that match is cheap, while a scan backwards from the
// newest turn would read every turn of the tenant when none matches.

/// Only the newest turn of a conversation counts: a client that resumes at an older turn would branch off.
const BY_TRANSCRIPT: &str = "SELECT conversation_id, id FROM turns AS own WHERE tenant_id = ?1 AND user_id = ?2 AND transcript_digest = ?3
      AND conversation_id IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM turns WHERE tenant_id = ?1 AND conversation_id = own.conversation_id AND id > own.id)
    ORDER BY +id DESC LIMIT 1";

const BY_EARLIER_TRANSCRIPT: &str = "SELECT conversation_id, id FROM turns WHERE tenant_id = ?1 AND user_id = ?2 AND transcript_digest = ?3
      AND conversation_id IS NOT NULL ORDER BY +id DESC LIMIT 1";

const BY_REQUEST: &str = "SELECT conversation_id, id, status, finished_at, NOT EXISTS
        (SELECT 1 FROM turns WHERE tenant_id = ?1 AND conversation_id = own.conversation_id AND id > own.id),
      json_extract(client, '$.continues.request'), json_extract(client, '$.continues.results')
    FROM turns AS own WHERE tenant_id = ?1 AND user_id = ?2 AND request_digest = ?3 AND conversation_id IS NOT NULL
    ORDER BY +id DESC LIMIT ?4";

/// The newest turn of a conversation.
pub(super) fn newest(c: &Connection, tenant: &Id, conversation: &Id) -> Result<Option<Uuid>, StoreError> {
    let mut statement = c.prepare_cached("SELECT id FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 ORDER BY id DESC LIMIT 1")?;
    first(&mut statement, params![tenant, conversation], |columns| columns.id())
}

/// Stores the results that a client sends in place of their placeholders, and cancels the calls without a result. Only ended turns
/// wait for a client, so rows of running turns are not changed.
pub(super) fn store_results(c: &Connection, tenant: &Id, conversation: &Id, open: &OpenTurn) -> Result<(), StoreError> {
    let Some(unanswered) = &open.unanswered else { return Ok(()) };
    let mut waiting = c.prepare_cached("SELECT EXISTS (SELECT 1 FROM messages WHERE conversation_id = ?1 AND status = 'pending')")?;
    if first(&mut waiting, params![conversation], |columns| columns.flag())? != Some(true) {
        return Ok(());
    }
    // A copied or imported call belongs to no turn.
    let ended =
        "(turn_id IS NULL OR turn_id IN (SELECT id FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 AND finished_at IS NOT NULL))";
    let mut answer = c.prepare_cached(&format!(
        "UPDATE messages SET content = ?4, status = ?5, metadata = coalesce(?6, metadata), tokens = NULL
         WHERE tenant_id = ?1 AND conversation_id = ?2 AND tool_call_id = ?3 AND status = 'pending' AND {ended}"
    ))?;
    for result in &open.results {
        // A result without a waiting placeholder is ignored: its call was canceled before, or never existed.
        answer.execute(params![tenant, conversation, result.tool_call_id, result.content, result.status, result.metadata])?;
    }
    c.prepare_cached(&format!(
        "UPDATE messages SET content = ?3, status = 'error', tokens = NULL WHERE tenant_id = ?1 AND conversation_id = ?2 AND status = 'pending' AND {ended}"
    ))?
    .execute(params![tenant, conversation, unanswered])?;
    Ok(())
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    [BY_TRANSCRIPT, BY_EARLIER_TRANSCRIPT, BY_REQUEST].map(str::to_owned).to_vec()
}
