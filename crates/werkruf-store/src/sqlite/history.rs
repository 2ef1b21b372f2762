//! [`HistoryImport`] on SQLite.

use rusqlite::{Connection, params};
use werkruf_contract::{State, Uuid};

use super::SqliteStore;
use super::insert::{self, count};
use super::text::{Id, Stamp};
use crate::{ConversationRow, HistoryImport, NewHistory, StoreError, StoreFuture};

impl HistoryImport for SqliteStore {
    fn put_history(&self, history: NewHistory) -> StoreFuture<'_, ConversationRow> {
        Box::pin(self.writer.submit(move |c| put(c, history)))
    }
}

fn put(c: &Connection, history: NewHistory) -> Result<ConversationRow, StoreError> {
    let (tenant, conversation, now) = (Id::from(history.tenant_id), Id::from(history.id), Stamp::from(history.now));
    c.prepare_cached(
        "INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, '{}', ?7, ?7)",
    )?
    .execute(params![conversation, tenant, history.user_id, history.channel, history.assistant, history.title, now])?;
    for (message, seq) in history.messages.iter().zip(1_i64..) {
        insert::message(c, (&tenant, &conversation, None), message, Some(seq), &now)?;
    }
    make_lease(c, history.tenant_id, history.id, count(history.messages.len()))?;
    let NewHistory { tenant_id, id, user_id, channel, assistant, title, now, .. } = history;
    Ok(ConversationRow { id, tenant_id, user_id, channel, assistant, title, state: State::new(), created_at: now, updated_at: now })
}

/// Creates a lease without an owner, with the next message number after this many messages.
pub(super) fn make_lease(c: &Connection, tenant_id: Uuid, conversation_id: Uuid, messages: i64) -> Result<(), StoreError> {
    c.prepare_cached("INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq) VALUES (?1, ?2, 0, 1, ?3)")?
        .execute(params![Id::from(tenant_id), Id::from(conversation_id), messages + 1])?;
    Ok(())
}
