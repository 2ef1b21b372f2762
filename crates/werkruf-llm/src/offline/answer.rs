//! The texts of the offline planner: tool results in the order of their calls, errors, and a list of what it can do.

use serde_json::Value;
use werkruf_contract::{Texts, ToolErrorType};

use crate::{Message, ModelRequest, ToolDefinition};

/// The result of one call.
pub(super) struct ToolResult<'a> {
    id: &'a str,
    tool: &'a str,
    content: &'a str,
}

/// The results after the last call, in the order of the calls; empty if the last message is not a tool result.
pub(super) fn results(messages: &[Message]) -> Vec<ToolResult<'_>> {
    let mut results: Vec<ToolResult<'_>> = Vec::new();
    for message in messages.iter().rev() {
        match message {
            Message::Tool { call_id, name, content, .. } => results.push(ToolResult { id: call_id, tool: name, content }),
            Message::Assistant { calls, .. } => {
                // Results are stored in order of completion; users expect the order of the calls.
                results.sort_by_key(|result| calls.iter().position(|call| call.id == result.id));
                return results;
            }
            Message::System { .. } | Message::User { .. } => break,
        }
    }
    results.reverse();
    results
}

/// The last result of the turn before the last message.
pub(super) fn last_result(messages: &[Message]) -> Option<(&str, Value)> {
    let before = messages.iter().rev().skip(1).take_while(|message| !matches!(message, Message::User { .. }));
    before.into_iter().find_map(|message| match message {
        Message::Tool { name, content, .. } => Some((name.as_str(), serde_json::from_str(content).unwrap_or_default())),
        Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => None,
    })
}

/// All results in the tools' own texts. The first answer of a conversation also says that no language model answers. A search that found
/// nothing is followed by what the planner can do.
pub(super) fn compose(texts: &Texts, request: &ModelRequest, results: &[ToolResult<'_>]) -> String {
    let messages = &request.messages;
    let mut parts: Vec<String> = results.iter().map(|result| result_text(texts, result)).collect();
    let found_nothing =
        |result: &ToolResult<'_>| serde_json::from_str::<Value>(result.content).is_ok_and(|value| value["kind"] == "nothing");
    if results.iter().all(found_nothing) {
        parts.push([abilities(texts, &request.tools), texts.text("offline-connect", &[])].join(" "));
    }
    let has_text = |message: &Message| matches!(message, Message::Assistant { content, .. } if !content.is_empty());
    if !messages.iter().any(has_text) {
        parts.push(texts.text("offline-notice", &[]));
    }
    parts.join("\n\n")
}

fn result_text(texts: &Texts, result: &ToolResult<'_>) -> String {
    let value: Value = serde_json::from_str(result.content).unwrap_or(Value::Null);
    if let Some(error) = value.get("error") {
        return error_text(texts, error);
    }
    match value.get("message").and_then(Value::as_str) {
        Some(message) if !message.is_empty() => message.to_owned(),
        Some(_) | None => texts.text("call-done", &[("tool", result.tool.into())]),
    }
}

fn error_text(texts: &Texts, error: &Value) -> String {
    let code = error.get("code").and_then(Value::as_str).unwrap_or("error");
    let reason = error.get("message").and_then(Value::as_str).unwrap_or(code);
    let kind = error.get("type").and_then(Value::as_str).and_then(ToolErrorType::parse);
    texts.call_error(kind, code, reason)
}

/// The answer if no tool proposes a call.
pub(super) fn help_text(texts: &Texts, tools: &[ToolDefinition]) -> String {
    [texts.text("offline-lost", &[]), abilities(texts, tools), texts.text("offline-connect", &[])].join(" ")
}

/// What the planner can do with these tools.
fn abilities(texts: &Texts, tools: &[ToolDefinition]) -> String {
    // A tool without a help text is offered to models, but not listed for users.
    let ability = |tool: &ToolDefinition| {
        let texts = tool.texts.map_or_else(|| texts.clone(), |module| texts.clone().with(module));
        let key = format!("{}-ability", tool.name);
        texts.knows(&key).then(|| texts.text(&key, &[]))
    };
    let things: Vec<String> = tools.iter().filter_map(ability).collect();
    if things.is_empty() {
        texts.text("offline-can-nothing", &[])
    } else {
        texts.text("offline-can", &[("things", things.join(", ").into())])
    }
}
