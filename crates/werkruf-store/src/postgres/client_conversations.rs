//! [`ClientConversations`] on PostgreSQL.

use std::borrow::Cow;

use serde::Serialize;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::{DbRole, Statement};
use super::param::{ms, p};
use super::row::{first, only};
use super::text::{clean, clean_json};
use super::turn_documents::{CallResult, Message, document};
use crate::{ClientConversations, ConversationCopy, JsonText, MessageChange, MessageEdit, NewItems, StoreError, StoreFuture};

// $1 tenant, $2 the original, $3 the last turn. The ids of a copy are new, so a conflict is this very transaction, committed by an attempt
// whose answer was lost.
const LAST: &str =
    "(SELECT coalesce(max(seq), 0) FROM messages WHERE tenant_id = $1 AND conversation_id = $2 AND turn_id IS NOT NULL AND turn_id <= $3)";

impl ClientConversations for PostgresStore {
    fn conversation_metadata(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>> {
        let sql = "SELECT metadata::text FROM conversations WHERE tenant_id = $1 AND id = $2";
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&conversation_id)]).await?;
            first(&rows, |columns| columns.text())
        })
    }

    fn put_conversation_metadata(&self, tenant_id: Uuid, conversation_id: Uuid, metadata: JsonText) -> StoreFuture<'_, bool> {
        let sql = "UPDATE conversations SET metadata = $3::text::jsonb WHERE tenant_id = $1 AND id = $2 RETURNING true";
        Box::pin(async move {
            let metadata = clean_json(&metadata);
            let values = [p(&tenant_id), p(&conversation_id), (&metadata as _, Type::TEXT)];
            Ok(self.query(DbRole::Tenant(tenant_id), sql, &values).await?.len() == 1)
        })
    }

    fn newest_turn(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<Uuid>> {
        let sql = "SELECT id FROM turns WHERE tenant_id = $1 AND conversation_id = $2 ORDER BY id DESC LIMIT 1";
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&conversation_id)]).await?;
            first(&rows, |columns| columns.id())
        })
    }

    fn append_items(&self, items: NewItems) -> StoreFuture<'_, bool> {
        let sql = "SELECT append_items($1, $2, $3::text::jsonb, $4, $5)";
        Box::pin(async move {
            let (tenant_id, conversation_id, now) = (items.tenant_id, items.conversation_id, ms(items.now));
            let doc = document(&ItemsDocument {
                results: items.results.iter().map(CallResult::from).collect(),
                messages: items.messages.iter().map(Message::from).collect(),
            })?;
            let values = [p(&tenant_id), p(&conversation_id), (&doc, Type::TEXT), p(&now)];
            only(&self.query_once(DbRole::Tenant(tenant_id), sql, &values).await?, |columns| columns.flag())
        })
    }

    fn edit_messages(&self, tenant_id: Uuid, conversation_id: Uuid, edits: Vec<MessageEdit>) -> StoreFuture<'_, ()> {
        let sql = "SELECT edit_messages($1, $2, $3::text::jsonb, $4)";
        Box::pin(async move {
            let doc = document(&edits.iter().map(Edit::from).collect::<Vec<_>>())?;
            let values = [p(&tenant_id), p(&conversation_id), (&doc, Type::TEXT)];
            self.query_once(DbRole::Tenant(tenant_id), sql, &values).await.map(|_| ())
        })
    }

    fn copy_conversation(&self, copy: ConversationCopy) -> StoreFuture<'_, bool> {
        Box::pin(self.put_copy(copy))
    }
}

#[derive(Serialize)]
struct ItemsDocument<'a> {
    results: Vec<CallResult<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct Edit<'a> {
    id: Uuid,
    change: &'static str,
    content: Option<&'a str>,
    tool_calls: Option<Cow<'a, str>>,
    metadata: Option<Cow<'a, str>>,
}

impl<'a> From<&'a MessageEdit> for Edit<'a> {
    fn from(MessageEdit { id, change }: &'a MessageEdit) -> Self {
        let whole = |change| Self { id: *id, change, content: None, tool_calls: None, metadata: None };
        match change {
            MessageChange::Delete => whole("delete"),
            MessageChange::Reopen => whole("reopen"),
            MessageChange::Replace { content, tool_calls, metadata } => {
                let tool_calls = tool_calls.as_deref().map(clean_json);
                Self { content: Some(content), tool_calls, metadata: Some(clean_json(metadata)), ..whole("replace") }
            }
        }
    }
}

impl PostgresStore {
    async fn put_copy(&self, copy: ConversationCopy) -> Result<bool, StoreError> {
        let ConversationCopy { tenant_id, from, until, id, reopened, now } = copy;
        let now = ms(now);
        let reopened: Vec<_> = reopened.iter().map(|call| clean(call)).collect();
        // A summary of later messages would show what the copy must not have.
        let conversation = format!(
            "INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, created_at, updated_at, metadata,
               summary, summary_until, summary_untrusted)
             SELECT $4, tenant_id, user_id, channel, assistant, title, $5, $5, metadata, CASE WHEN summary_until <= last THEN summary END,
               CASE WHEN summary_until <= last THEN summary_until END, CASE WHEN summary_until <= last THEN summary_untrusted END
             FROM conversations CROSS JOIN {LAST} AS end_of_copy (last) WHERE tenant_id = $1 AND id = $2
             ON CONFLICT (tenant_id, id) DO NOTHING"
        );
        let messages = format!(
            "INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, tool_calls, tool_call_id, tool_name, status,
               metadata, seq, tokens)
             SELECT id, tenant_id, created_at, $4, CASE WHEN again THEN '' ELSE content END, role, tool_calls, tool_call_id, tool_name,
               CASE WHEN again THEN 'pending' ELSE status END, CASE WHEN again THEN '{{}}' ELSE metadata END, seq,
               CASE WHEN again THEN NULL ELSE tokens END
             FROM messages CROSS JOIN LATERAL (SELECT coalesce(tool_call_id = ANY ($5), false)) AS waiting (again)
             WHERE tenant_id = $1 AND conversation_id = $2 AND seq <= {LAST}
             ON CONFLICT (tenant_id, conversation_id, id) DO NOTHING"
        );
        let lease = format!(
            "INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq)
             SELECT $1, $4, 0, 1, {LAST} + 1 FROM conversations WHERE tenant_id = $1 AND id = $4
             ON CONFLICT (tenant_id, conversation_id) DO NOTHING"
        );
        let found = "SELECT true FROM conversations WHERE tenant_id = $1 AND id = $2";
        let statements = [
            Statement { sql: &conversation, params: &[p(&tenant_id), p(&from), p(&until), p(&id), p(&now)] },
            Statement { sql: &messages, params: &[p(&tenant_id), p(&from), p(&until), p(&id), (&reopened as _, Type::TEXT_ARRAY)] },
            Statement { sql: &lease, params: &[p(&tenant_id), p(&from), p(&until), p(&id)] },
            Statement { sql: found, params: &[p(&tenant_id), p(&id)] },
        ];
        Ok(self.run(DbRole::Tenant(tenant_id), &statements).await?.pop().is_some_and(|rows| !rows.is_empty()))
    }
}
