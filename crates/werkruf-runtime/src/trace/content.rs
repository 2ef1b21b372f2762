//! Messages as spans show them, where the operator wants content. The newest messages are kept within a bound; a text is cut.

use serde_json::{Value, json};
use werkruf_llm::{Message, ToolCall};

use crate::redaction::Redaction;

/// The most bytes of one text.
const TEXT_BYTES: usize = 8 * 1024;
/// The most bytes of all messages of one request, roughly.
const ALL_BYTES: usize = 32 * 1024;

/// Makes the content of spans, without the server's secrets.
pub(crate) struct Content<'a>(pub(super) &'a Redaction);

impl Content<'_> {
    /// A text within its bound.
    pub(crate) fn text(&self, text: &str) -> String {
        self.0.beginning(text, TEXT_BYTES)
    }

    /// The newest messages of a request.
    pub(crate) fn messages(&self, messages: &[Message]) -> Value {
        newest(messages.iter().rev().map(|message| self.message(message)))
    }

    /// Messages that a tool sends, or that a person wrote.
    pub(crate) fn texts<'t>(&self, texts: impl DoubleEndedIterator<Item = &'t str>) -> Value {
        newest(texts.rev().map(|text| entry("user", [self.part(text)])))
    }

    /// What the model answered.
    pub(crate) fn answer(&self, text: &str, calls: &[ToolCall], finish: &str) -> Value {
        let called = calls.iter().map(|call| self.call(call.call_id.as_deref().unwrap_or_default(), &call.name, &call.arguments));
        let mut answer = entry("assistant", (!text.is_empty()).then(|| self.part(text)).into_iter().chain(called));
        answer["finish_reason"] = finish.into();
        newest(std::iter::once(answer))
    }

    fn message(&self, message: &Message) -> Value {
        match message {
            Message::System { content } => entry("system", [self.part(content)]),
            Message::User { content, .. } => entry("user", [self.part(content)]),
            Message::Assistant { content, calls, .. } => {
                let called = calls.iter().map(|call| self.call(&call.id, &call.name, &call.arguments));
                entry("assistant", (!content.is_empty()).then(|| self.part(content)).into_iter().chain(called))
            }
            Message::Tool { call_id, content, .. } => {
                entry("tool", [json!({"type": "tool_call_response", "id": call_id, "response": self.text(content)})])
            }
        }
    }

    pub(crate) fn part(&self, text: &str) -> Value {
        json!({"type": "text", "content": self.text(text)})
    }

    fn call(&self, id: &str, name: &str, arguments: &str) -> Value {
        json!({"type": "tool_call", "id": id, "name": name, "arguments": self.text(arguments)})
    }
}

/// Messages from the newest on, as many as fit, in their order.
fn newest(messages: impl Iterator<Item = Value>) -> Value {
    let mut left = ALL_BYTES;
    let mut kept: Vec<Value> = Vec::new();
    for message in messages {
        let bytes = message.to_string().len();
        if bytes > left && !kept.is_empty() {
            break;
        }
        left = left.saturating_sub(bytes);
        kept.push(message);
    }
    kept.reverse();
    Value::Array(kept)
}

fn entry(role: &str, parts: impl IntoIterator<Item = Value>) -> Value {
    json!({"role": role, "parts": Value::from_iter(parts)})
}
