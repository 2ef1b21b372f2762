//! The planner's sentences: results in the order of their calls, refusals in polite words, and what it can do.

use serde_json::Value;
use werkruf_contract::Texts;

use crate::{Message, ToolDefinition};

/// One result, and the tool it came from.
pub(super) struct Outcome<'a> {
    id: &'a str,
    tool: &'a str,
    content: &'a str,
}

/// The results after the last call, in the order of the calls; empty when the last word was not a tool's.
pub(super) fn results(messages: &[Message]) -> Vec<Outcome<'_>> {
    let mut outcomes: Vec<Outcome<'_>> = Vec::new();
    for message in messages.iter().rev() {
        match message {
            Message::Tool { call_id, name, content } => outcomes.push(Outcome { id: call_id, tool: name, content }),
            Message::Assistant { calls, .. } => {
                // Results are stored as they came in; people expect them as they were asked for.
                outcomes.sort_by_key(|outcome| calls.iter().position(|call| call.id == outcome.id));
                return outcomes;
            }
            Message::System { .. } | Message::User { .. } => break,
        }
    }
    outcomes.reverse();
    outcomes
}

/// All results in the tools' own words. The first answer of a conversation says who is speaking.
pub(super) fn compose(words: &Texts, messages: &[Message], outcomes: &[Outcome<'_>]) -> String {
    let mut parts: Vec<String> = outcomes.iter().map(|outcome| tell(words, outcome)).collect();
    let spoke = |message: &Message| matches!(message, Message::Assistant { content, .. } if !content.is_empty());
    if !messages.iter().any(spoke) {
        parts.push(words.text("offline-notice", &[]));
    }
    parts.join("\n\n")
}

fn tell(words: &Texts, outcome: &Outcome<'_>) -> String {
    let value: Value = serde_json::from_str(outcome.content).unwrap_or(Value::Null);
    if let Some(error) = value.get("error") {
        return refuse(words, error);
    }
    match value.get("message").and_then(Value::as_str) {
        Some(message) if !message.is_empty() => message.to_owned(),
        Some(_) | None => words.text("offline-done", &[("tool", outcome.tool.into())]),
    }
}

/// An error by its code. A tool that refuses what it was given says why in the person's words; anything else nobody has words for is named.
fn refuse(words: &Texts, error: &Value) -> String {
    let code = error.get("code").and_then(Value::as_str).unwrap_or("error");
    let reason = error.get("message").and_then(Value::as_str).unwrap_or(code);
    let key = format!("call-{code}");
    if !words.knows(&key) && error["type"] == "VALIDATION" && !reason.is_empty() {
        return reason.to_owned();
    }
    let key = if words.knows(&key) { key.as_str() } else { "call-other" };
    words.text(key, &[("code", code.into()), ("reason", reason.into())])
}

/// What is said when no tool knows the text.
pub(super) fn lost(words: &Texts, tools: &[ToolDefinition]) -> String {
    // A tool without words of its own is offered to models, and not to people.
    let things: Vec<String> = tools
        .iter()
        .map(|tool| format!("offline-thing-{}", tool.name))
        .filter(|key| words.knows(key))
        .map(|key| words.text(&key, &[]))
        .collect();
    let can = if things.is_empty() {
        words.text("offline-can-nothing", &[])
    } else {
        words.text("offline-can", &[("things", things.join(", ").into())])
    };
    [words.text("offline-lost", &[]), can, words.text("offline-connect", &[])].join(" ")
}
