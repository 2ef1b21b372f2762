//! [`ClientConversations`] on SQLite.

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::client_requests::newest;
use super::insert::{self, count};
use super::row::first;
use super::text::{Id, Stamp};
use crate::{ClientConversations, ConversationCopy, JsonText, MessageChange, MessageEdit, NewItems, StoreError, StoreFuture};

impl ClientConversations for SqliteStore {
    fn conversation_metadata(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached("SELECT metadata FROM conversations WHERE tenant_id = ?1 AND id = ?2")?;
            first(&mut statement, params![Id::from(tenant_id), Id::from(conversation_id)], |columns| columns.text())
        }))
    }

    fn put_conversation_metadata(&self, tenant_id: Uuid, conversation_id: Uuid, metadata: JsonText) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let mut statement = c.prepare_cached("UPDATE conversations SET metadata = ?3 WHERE tenant_id = ?1 AND id = ?2")?;
            Ok(statement.execute(params![Id::from(tenant_id), Id::from(conversation_id), metadata])? == 1)
        }))
    }

    fn newest_turn(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<Uuid>> {
        Box::pin(self.readers.look_up(move |c| newest(c, &Id::from(tenant_id), &Id::from(conversation_id))))
    }

    fn append_items(&self, items: NewItems) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| append(c, &items)))
    }

    fn edit_messages(&self, tenant_id: Uuid, conversation_id: Uuid, edits: Vec<MessageEdit>) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| edit(c, &Id::from(tenant_id), &Id::from(conversation_id), &edits)))
    }

    fn copy_conversation(&self, copy: ConversationCopy) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| put_copy(c, &copy)))
    }
}

/// Refuses while a turn of the conversation has not ended.
fn check_idle(c: &Connection, tenant: &Id, conversation: &Id) -> Result<(), StoreError> {
    let mut statement =
        c.prepare_cached("SELECT EXISTS (SELECT 1 FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 AND finished_at IS NULL)")?;
    let busy = first(&mut statement, params![tenant, conversation], |columns| columns.flag())? == Some(true);
    if busy { Err(StoreError::Busy) } else { Ok(()) }
}

fn append(c: &Connection, items: &NewItems) -> Result<bool, StoreError> {
    let (tenant, conversation, now) = (Id::from(items.tenant_id), Id::from(items.conversation_id), Stamp::from(items.now));
    check_idle(c, &tenant, &conversation)?;
    let touched = c
        .prepare_cached("UPDATE conversations SET updated_at = max(updated_at, ?3) WHERE tenant_id = ?1 AND id = ?2")?
        .execute(params![tenant, conversation, now])?;
    if touched == 0 {
        return Ok(false);
    }
    for result in &items.results {
        c.prepare_cached(
            "UPDATE messages SET content = ?4, status = ?5, metadata = coalesce(?6, metadata), tokens = NULL
             WHERE tenant_id = ?1 AND conversation_id = ?2 AND tool_call_id = ?3 AND status = 'pending'",
        )?
        .execute(params![tenant, conversation, result.tool_call_id, result.content, result.status, result.metadata])?;
    }
    let mut statement = c.prepare_cached(
        "UPDATE leases SET next_message_seq = next_message_seq + ?3 WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner IS NULL
         RETURNING next_message_seq",
    )?;
    let added = count(items.messages.len());
    let next = first(&mut statement, params![tenant, conversation, added], |columns| columns.int())?.ok_or(StoreError::Busy)?;
    for (message, seq) in items.messages.iter().zip(next - added..) {
        insert::message(c, (&tenant, &conversation, None), message, Some(seq), &now)?;
    }
    Ok(true)
}

fn edit(c: &Connection, tenant: &Id, conversation: &Id, edits: &[MessageEdit]) -> Result<(), StoreError> {
    check_idle(c, tenant, conversation)?;
    for MessageEdit { id: message_id, change } in edits {
        let id = Id::from(*message_id);
        let changed = match change {
            MessageChange::Delete => c
                .prepare_cached("DELETE FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2 AND id = ?3")?
                .execute(params![tenant, conversation, id])?,
            MessageChange::Replace { content, tool_calls, metadata } => c
                .prepare_cached(
                    "UPDATE messages SET content = ?4, tool_calls = ?5, metadata = ?6, tokens = NULL
                     WHERE tenant_id = ?1 AND conversation_id = ?2 AND id = ?3",
                )?
                .execute(params![tenant, conversation, id, content, tool_calls, metadata])?,
            MessageChange::Reopen => c
                .prepare_cached(
                    "UPDATE messages SET content = '', status = 'pending', metadata = '{}', tokens = NULL
                     WHERE tenant_id = ?1 AND conversation_id = ?2 AND id = ?3",
                )?
                .execute(params![tenant, conversation, id])?,
        };
        if changed != 1 {
            return Err(StoreError::Moved { what: "message", id: message_id.to_string() });
        }
    }
    Ok(())
}

/// The number of the last message that is copied.
const LAST: &str =
    "SELECT coalesce(max(seq), 0) FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2 AND turn_id IS NOT NULL AND turn_id <= ?3";

fn put_copy(c: &Connection, copy: &ConversationCopy) -> Result<bool, StoreError> {
    let (tenant, from, id) = (Id::from(copy.tenant_id), Id::from(copy.from), Id::from(copy.id));
    let mut statement = c.prepare_cached(LAST)?;
    let last = first(&mut statement, params![tenant, from, Id::from(copy.until)], |columns| columns.int())?.unwrap_or(0);
    // A summary of later messages would show what the copy must not have.
    let copied = c
        .prepare_cached(
            "INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, created_at, updated_at, metadata,
               summary, summary_until, summary_untrusted)
             SELECT ?3, tenant_id, user_id, channel, assistant, title, ?4, ?4, metadata, CASE WHEN summary_until <= ?5 THEN summary END,
               CASE WHEN summary_until <= ?5 THEN summary_until END, CASE WHEN summary_until <= ?5 THEN summary_untrusted END
             FROM conversations WHERE tenant_id = ?1 AND id = ?2",
        )?
        .execute(params![tenant, from, id, Stamp::from(copy.now), last])?;
    if copied == 0 {
        return Ok(false);
    }
    let reopened = serde_json::to_string(&copy.reopened).map_err(|error| StoreError::Broken(error.to_string()))?;
    c.prepare_cached(
        "INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, tool_calls, tool_call_id, tool_name, status,
           metadata, seq, tokens)
         SELECT id, tenant_id, created_at, ?3, CASE WHEN again THEN '' ELSE content END, role, tool_calls, tool_call_id, tool_name,
           CASE WHEN again THEN 'pending' ELSE status END, CASE WHEN again THEN '{}' ELSE metadata END, seq,
           CASE WHEN again THEN NULL ELSE tokens END
         FROM (SELECT *, coalesce(tool_call_id IN (SELECT value FROM json_each(?5)), 0) AS again FROM messages
               WHERE tenant_id = ?1 AND conversation_id = ?2 AND seq <= ?4)",
    )?
    .execute(params![tenant, from, id, last, reopened])?;
    super::history::make_lease(c, copy.tenant_id, copy.id, last)?;
    Ok(true)
}
