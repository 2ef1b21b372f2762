//! [`HistoryImport`] on PostgreSQL.

use serde_json::{Value, json};
use tokio_postgres::types::Type;
use werkruf_contract::State;

use super::PostgresStore;
use super::flush::{DbRole, Statement};
use super::param::{ms, p};
use super::text::{clean, clean_json};
use crate::{ConversationRow, HistoryImport, NewHistory, NewMessage, StoreError, StoreFuture};

// The ids are new, so a conflict is this very transaction, committed by an attempt whose answer was lost.
const CONVERSATION: &str = "INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
    VALUES ($2, $1, $3, $4, $5, $6, '{}', $7, $7) ON CONFLICT (tenant_id, id) DO NOTHING";

const MESSAGES: &str =
    "INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, tool_calls, tool_call_id, tool_name,
      status, metadata, seq, tokens)
    SELECT given.id, $1, $3, $2, given.content, given.role, given.tool_calls::jsonb, given.tool_call_id, given.tool_name, given.status,
      given.metadata::jsonb, given.seq, given.tokens
    FROM json_to_recordset($4::json) AS given (id uuid, content text, role text, tool_calls text, tool_call_id text, tool_name text,
      status text, metadata text, seq bigint, tokens bigint)
    ON CONFLICT (tenant_id, conversation_id, id) DO NOTHING";

const LEASE: &str = "INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq) VALUES ($1, $2, 0, 1, $3)
    ON CONFLICT (tenant_id, conversation_id) DO NOTHING";

impl HistoryImport for PostgresStore {
    fn put_history(&self, history: NewHistory) -> StoreFuture<'_, ConversationRow> {
        Box::pin(self.put(history))
    }
}

impl PostgresStore {
    async fn put(&self, history: NewHistory) -> Result<ConversationRow, StoreError> {
        let (tenant_id, id, now) = (history.tenant_id, history.id, ms(history.now));
        let messages: Vec<Value> = history.messages.iter().zip(1_i64..).map(|(message, seq)| row(message, seq)).collect();
        let next = i64::try_from(messages.len()).unwrap_or(i64::MAX).saturating_add(1);
        let messages = Value::Array(messages).to_string();
        let messages = clean_json(&messages);
        let (user_id, channel) = (clean(&history.user_id), clean(&history.channel));
        let (assistant, title) = (clean(&history.assistant), clean(&history.title));
        let values = [p(&tenant_id), p(&id), p(&user_id), p(&channel), p(&assistant), p(&title), p(&now)];
        let statements = [
            Statement { sql: CONVERSATION, params: &values },
            Statement { sql: MESSAGES, params: &[p(&tenant_id), p(&id), p(&now), (&messages, Type::TEXT)] },
            Statement { sql: LEASE, params: &[p(&tenant_id), p(&id), p(&next)] },
        ];
        self.run(DbRole::Tenant(tenant_id), &statements).await?;
        let NewHistory { tenant_id, id, user_id, channel, assistant, title, .. } = history;
        Ok(ConversationRow { id, tenant_id, user_id, channel, assistant, title, state: State::new(), created_at: now, updated_at: now })
    }
}

/// JSON columns are sent as text inside the JSON, so that their exact text is kept.
fn row(message: &NewMessage, seq: i64) -> Value {
    json!({
        "id": message.id,
        "content": message.content,
        "role": message.role,
        "tool_calls": message.tool_calls.as_deref().map(clean_json),
        "tool_call_id": message.tool_call_id,
        "tool_name": message.tool_name,
        "status": message.status,
        "metadata": message.metadata.as_deref().map_or("{}".into(), clean_json),
        "seq": seq,
        "tokens": message.tokens,
    })
}
