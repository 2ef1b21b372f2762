//! Conversations of two hundred messages: fifty one-call turns, with the same messages as the load writes.

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use uuid::Uuid;
use werkruf_store::{NewHistory, NewMessage};

use super::{AT_ONCE, SeedStore};

/// Messages per conversation.
pub const HISTORY: usize = 200;

/// A message of an older conversation.
#[derive(Debug, Clone)]
pub struct Past {
    pub role: &'static str,
    pub content: String,
    /// The call of an assistant message, or the call that a tool message answers.
    pub call: Option<String>,
    pub arguments: String,
}

/// Two hundred messages, in blocks of question, call, result, answer.
pub fn past() -> Vec<Past> {
    let answer: String = (1..=31).map(|piece| format!("piece {piece} ")).collect();
    (0..HISTORY / 4)
        .flat_map(|turn| {
            let (id, arguments) = (Some(format!("past_{turn}")), json!({"value": format!("step 0 call {turn}")}).to_string());
            let message = |role, content: &str, call| Past { role, content: content.to_owned(), call, arguments: arguments.clone() };
            [
                message("user", &format!("Turn {turn} of long ago"), None),
                message("assistant", "", id.clone()),
                message("tool", &arguments, id),
                message("assistant", &answer, None),
            ]
        })
        .collect()
}

/// Writes a conversation of these messages under each id.
pub async fn history(seed_store: &SeedStore, conversations: &[Uuid], messages: &[Past]) -> Result<(), String> {
    let writes = conversations.iter().map(|id| {
        let history = NewHistory {
            tenant_id: seed_store.tenant_id,
            id: *id,
            user_id: "1".to_owned(),
            channel: "api".to_owned(),
            assistant: "default".to_owned(),
            title: "Long ago".to_owned(),
            messages: messages.iter().map(|past| message(seed_store, past)).collect(),
            now: seed_store.clock.now(),
        };
        seed_store.history.put_history(history)
    });
    stream::iter(writes).buffer_unordered(AT_ONCE / 16).try_for_each(|_| async { Ok(()) }).await.map_err(|error| error.to_string())
}

fn message(seed_store: &SeedStore, past: &Past) -> NewMessage {
    let id = seed_store.clock.new_id();
    if let (true, Some(call)) = (past.role == "tool", &past.call) {
        return NewMessage::result(id, call.as_str(), "test_echo", past.content.as_str(), "success");
    }
    let arguments = || serde_json::from_str::<serde_json::Value>(&past.arguments).unwrap_or_default();
    let calls = past.call.as_ref().map(|id| json!([{"id": id, "name": "test_echo", "args": arguments()}]).to_string());
    NewMessage { tool_calls: calls, ..NewMessage::new(id, past.role, past.content.as_str()) }
}
