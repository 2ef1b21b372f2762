//! The same rows that Werkruf writes: five at each commit, of about the same size, and two commits per step.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::seed::Past;

pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS leases (conversation_id TEXT PRIMARY KEY, owner TEXT, epoch INTEGER, next_event_seq INTEGER, next_message_seq INTEGER, expires_at TEXT);
CREATE TABLE IF NOT EXISTS inbox (external_id TEXT PRIMARY KEY, turn_id TEXT, created_at TEXT);
CREATE TABLE IF NOT EXISTS turns (id TEXT PRIMARY KEY, conversation_id TEXT, status TEXT, step INTEGER, updated_at TEXT);
CREATE TABLE IF NOT EXISTS messages (id TEXT, conversation_id TEXT, role TEXT, content TEXT, tool_calls TEXT, created_at TEXT, PRIMARY KEY (conversation_id, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tool_calls (id TEXT PRIMARY KEY, turn_id TEXT, tool_name TEXT, status TEXT, request TEXT, response TEXT, context TEXT, updated_at TEXT);
CREATE TABLE IF NOT EXISTS events (conversation_id TEXT, seq INTEGER, type TEXT, data TEXT, created_at TEXT, PRIMARY KEY (conversation_id, seq));
CREATE TABLE IF NOT EXISTS api_usage (id TEXT PRIMARY KEY, turn_id TEXT, model TEXT, tokens_total INTEGER, created_at TEXT);
";

const LEASE: &str = "INSERT INTO leases VALUES (?1, ?2, 1, 1, 1, ?3) ON CONFLICT (conversation_id) DO UPDATE SET epoch = epoch + 1, next_event_seq = next_event_seq + 1, expires_at = ?3";
const MESSAGE: &str = "INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const EVENT: &str = "INSERT INTO events VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM events WHERE conversation_id = ?1), ?2, ?3, ?4)";
/// The messages of a conversation in order: ids increase, and the table is clustered by them.
pub(super) const HISTORY: &str = "SELECT role, content, tool_calls FROM messages WHERE conversation_id = ?1 ORDER BY id";
const NOW: &str = "2026-01-01T00:00:00.000Z";

/// One statement with its values.
pub struct Row {
    pub(super) sql: &'static str,
    pub(super) values: Vec<String>,
}

fn row<const N: usize>(sql: &'static str, values: [&str; N]) -> Row {
    Row { sql, values: values.iter().map(|value| (*value).to_owned()).collect() }
}

/// A turn's ids.
pub(super) struct Turn {
    pub(super) conversation: Uuid,
    id: String,
    call: String,
    message: String,
}

#[expect(clippy::disallowed_methods, reason = "the floor makes ids the quickest way")]
fn new_id() -> Uuid {
    Uuid::now_v7()
}

impl Turn {
    pub(super) fn new(conversation: Option<Uuid>, message: &str) -> Self {
        Self {
            conversation: conversation.unwrap_or_else(new_id),
            id: new_id().to_string(),
            call: String::new(),
            message: message.to_owned(),
        }
    }

    fn lease(&self) -> Row {
        row(LEASE, [&self.conversation.to_string(), "floor", NOW])
    }

    fn message(&self, role: &str, content: &str, calls: &str) -> Row {
        row(MESSAGE, [&new_id().to_string(), &self.conversation.to_string(), role, content, calls, NOW])
    }

    fn event(&self, kind: &str, data: &str) -> Row {
        row(EVENT, [&self.conversation.to_string(), kind, data, NOW])
    }

    fn usage(&self) -> Row {
        row("INSERT INTO api_usage VALUES (?1, ?2, ?3, ?4, ?5)", [&new_id().to_string(), &self.id, "fixed", "131", NOW])
    }

    pub(super) fn accepted(&self) -> Vec<Row> {
        let key = new_id().to_string();
        vec![
            self.lease(),
            row("INSERT INTO inbox VALUES (?1, ?2, ?3)", [&key, &self.id, NOW]),
            self.message("user", &self.message, ""),
            row("INSERT INTO turns VALUES (?1, ?2, 'planning', 0, ?3)", [&self.id, &self.conversation.to_string(), NOW]),
            self.event("init", &format!(r#"{{"conversation_id":"{}","turn_id":"{}"}}"#, self.conversation, self.id)),
        ]
    }

    pub(super) fn acting(&mut self, call: &Value) -> Vec<Row> {
        self.call = new_id().to_string();
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let context = format!(r#"{{"tenant_id":"{0}","trace_id":"{0}","invocation_id":"{0}","now_iso":"{NOW}","run_id":"{0}"}}"#, self.id);
        vec![
            self.lease(),
            self.message("assistant", "", &call.to_string()),
            row(
                "INSERT INTO tool_calls VALUES (?1, ?2, 'test_echo', 'running', ?3, NULL, ?4, ?5)",
                [&self.call, &self.id, arguments, &context, NOW],
            ),
            self.event("tool_started", &format!(r#"{{"tool":"test_echo","job_id":"{}"}}"#, self.call)),
            row("UPDATE turns SET status = 'acting', step = 1, updated_at = ?2 WHERE id = ?1", [&self.id, NOW]),
        ]
    }

    pub(super) fn acted(&self, call: &Value, result: &str) -> Vec<Row> {
        vec![
            self.lease(),
            row("UPDATE tool_calls SET status = 'succeeded', response = ?2, updated_at = ?3 WHERE id = ?1", [&self.call, result, NOW]),
            self.message("tool", result, &call["id"].to_string()),
            self.event("tool_finished", &format!(r#"{{"tool":"test_echo","job_id":"{}","status":"succeeded"}}"#, self.call)),
            self.usage(),
        ]
    }

    pub(super) fn completed(&self, text: &str) -> Vec<Row> {
        vec![
            self.lease(),
            self.message("assistant", text, ""),
            self.usage(),
            row("UPDATE turns SET status = 'completed', updated_at = ?2 WHERE id = ?1", [&self.id, NOW]),
            self.event("final", &format!(r#"{{"turn_id":"{}","message":{}}}"#, self.id, Value::from(text))),
        ]
    }
}

/// Messages of an older conversation, as rows.
pub(super) fn history(conversation: Uuid, messages: &[Past]) -> Vec<Row> {
    let conversation = conversation.to_string();
    let calls = |past: &Past| match &past.call {
        Some(id) if past.role == "tool" => Value::from(id.as_str()).to_string(),
        Some(id) => {
            json!({"index": 0, "id": id, "type": "function", "function": {"name": "test_echo", "arguments": past.arguments}}).to_string()
        }
        None => String::new(),
    };
    messages.iter().map(|past| row(MESSAGE, [&new_id().to_string(), &conversation, past.role, &past.content, &calls(past), NOW])).collect()
}
