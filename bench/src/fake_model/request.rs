//! A request as the fake received it, and whether the real API would have taken it.

use axum::http::HeaderMap;
use serde_json::Value;

/// A request to `/chat/completions`.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub headers: HeaderMap,
    pub body: Value,
    /// The fake refused it, because the real API would have.
    pub refused: bool,
}

impl RecordedRequest {
    /// The messages sent.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The last message; null when there is none.
    pub fn last_message(&self) -> &Value {
        self.messages().last().unwrap_or(&Value::Null)
    }

    /// The text of the last user message.
    pub fn user_text(&self) -> &str {
        let last = self.messages().iter().rev().find(|message| message["role"] == "user");
        last.and_then(|message| message["content"].as_str()).unwrap_or_default()
    }

    /// The names of the tools offered.
    pub fn tool_names(&self) -> Vec<&str> {
        self.body["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["function"]["name"].as_str()).collect()
    }

    /// The tool messages after the last message of another role.
    pub fn tool_results(&self) -> Vec<&Value> {
        let mut results: Vec<_> = self.messages().iter().rev().take_while(|message| message["role"] == "tool").collect();
        results.reverse();
        results
    }
}

/// What the real API says of a history whose calls and results do not pair up.
pub(super) fn history_fault(messages: &[Value]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(place) = open.iter().position(|open| *open == id) else {
                return Some(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.".into(),
                );
            };
            open.remove(place);
            continue;
        }
        if !open.is_empty() {
            break;
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open = calls.map(|call| call["id"].as_str().unwrap_or_default()).collect();
    }
    (!open.is_empty()).then(|| {
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.join(", ")
        )
    })
}
