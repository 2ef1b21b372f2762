//! Content that is more than text: a list of parts, kept in `metadata.content` beside the text in it.
//!
//! Parts are kept as Chat Completions writes them; the Responses API has other names for the same.

use serde_json::{Map, Value, json};

use super::StoredMessage;

const PARTS: &str = "content";

/// The text in a content, and the content itself where it is not just that text.
pub(super) fn split(content: Option<&Value>) -> (String, Option<Value>) {
    match content {
        None | Some(Value::Null) => (String::new(), None),
        Some(Value::String(text)) => (text.clone(), None),
        Some(other) => (text_of(other), Some(other.clone())),
    }
}

fn text_of(content: &Value) -> String {
    let part = |part: &Value| match part {
        Value::String(text) => text.clone(),
        other => ["text", "refusal"].iter().find_map(|name| other[*name].as_str()).unwrap_or_default().to_owned(),
    };
    content.as_array().map(|parts| parts.iter().map(part).collect()).unwrap_or_default()
}

/// Keeps parts with a message.
pub(super) fn keep(metadata: &mut Map<String, Value>, parts: Option<Value>) {
    match parts {
        Some(parts) => drop(metadata.insert(PARTS.to_owned(), parts)),
        None => drop(metadata.remove(PARTS)),
    }
}

/// The parts of a message, while they still say what its text says.
pub(super) fn parts(message: &StoredMessage) -> Option<&Value> {
    message.metadata.get(PARTS).filter(|parts| parts.is_array() && text_of(parts) == message.content)
}

/// Parts where there are some, else the text.
pub(super) fn whole(message: &StoredMessage) -> Value {
    parts(message).cloned().unwrap_or_else(|| Value::from(message.content.as_str()))
}

/// Metadata without what `whole` already says.
pub(super) fn beside(message: &StoredMessage, except: &str) -> Map<String, Value> {
    let said = parts(message).is_some();
    let kept = |name: &String| name != except && !(said && name == PARTS);
    message.metadata.iter().filter(|(name, _)| kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Parts in the words of the Responses API; `text` is what it calls text at this place.
pub(super) fn to_items(parts: &Value, text: &str) -> Value {
    let part = |part: &Value| match (part["type"].as_str(), &part["image_url"]["url"]) {
        (Some("text"), _) if text == "output_text" => json!({"type": text, "text": part["text"], "annotations": []}),
        (Some("text"), _) => json!({"type": text, "text": part["text"]}),
        (Some("image_url"), url @ Value::String(_)) => json!({"type": "input_image", "image_url": url}),
        _ => part.clone(),
    };
    Value::Array(parts.as_array().into_iter().flatten().map(part).collect())
}

/// The other way.
pub(super) fn from_items(parts: &Value) -> Value {
    let part = |part: &Value| match (part["type"].as_str(), &part["image_url"]) {
        (Some("input_text" | "output_text"), _) => json!({"type": "text", "text": part["text"]}),
        (Some("input_image"), url @ Value::String(_)) => json!({"type": "image_url", "image_url": {"url": url}}),
        _ => part.clone(),
    };
    Value::Array(parts.as_array().into_iter().flatten().map(part).collect())
}
