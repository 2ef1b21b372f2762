//! Content that is a list of parts. It is stored in `metadata.content`, in addition to its text.
//!
//! Parts are stored in the format of Chat Completions; the Responses API uses other names for the same parts.

use serde_json::{Map, Value, json};

use super::StoredMessage;

const PARTS: &str = "content";

/// The text of a content, and the content itself if it is more than text.
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

/// Stores the parts in the metadata.
pub(super) fn store_parts(metadata: &mut Map<String, Value>, parts: Option<Value>) {
    match parts {
        Some(parts) => drop(metadata.insert(PARTS.to_owned(), parts)),
        None => drop(metadata.remove(PARTS)),
    }
}

/// The stored parts of a message, if their text still matches the message's text.
pub(super) fn parts(message: &StoredMessage) -> Option<&Value> {
    message.metadata.get(PARTS).filter(|parts| parts.is_array() && text_of(parts) == message.content)
}

/// The parts if there are any, else the text.
pub(super) fn value(message: &StoredMessage) -> Value {
    parts(message).cloned().unwrap_or_else(|| Value::from(message.content.as_str()))
}

/// The metadata without the parts that `value` already contains.
pub(super) fn other_metadata(message: &StoredMessage, except: &str) -> Map<String, Value> {
    let has_parts = parts(message).is_some();
    let included = |name: &String| name != except && !(has_parts && name == PARTS);
    message.metadata.iter().filter(|(name, _)| included(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Parts in the format of the Responses API; `text` is the type of its text parts.
pub(super) fn to_items(parts: &Value, text: &str) -> Value {
    let part = |part: &Value| match (part["type"].as_str(), &part["image_url"]["url"]) {
        (Some("text"), _) if text == "output_text" => json!({"type": text, "text": part["text"], "annotations": []}),
        (Some("text"), _) => json!({"type": text, "text": part["text"]}),
        (Some("image_url"), url @ Value::String(_)) => {
            json!({"type": "input_image", "image_url": url, "detail": part["image_url"]["detail"].as_str().unwrap_or("auto")})
        }
        (Some("file"), _) if part["file"].is_object() => with_type("input_file", &part["file"]),
        _ => part.clone(),
    };
    Value::Array(parts.as_array().into_iter().flatten().map(part).collect())
}

fn with_type(name: &str, fields: &Value) -> Value {
    let mut object = fields.as_object().cloned().unwrap_or_default();
    object.insert("type".to_owned(), name.into());
    Value::Object(object)
}

fn without_type(part: &Value) -> Value {
    let fields = part.as_object().into_iter().flatten().filter(|(name, value)| *name != "type" && !value.is_null());
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Parts of the Responses API in the format of Chat Completions.
pub(super) fn from_items(parts: &Value) -> Value {
    let part = |part: &Value| match (part["type"].as_str(), &part["image_url"]) {
        (Some("input_text" | "output_text"), _) => json!({"type": "text", "text": part["text"]}),
        (Some("input_image"), url @ Value::String(_)) => match part["detail"].as_str().filter(|detail| *detail != "auto") {
            Some(detail) => json!({"type": "image_url", "image_url": {"url": url, "detail": detail}}),
            None => json!({"type": "image_url", "image_url": {"url": url}}),
        },
        (Some("input_file"), _) => json!({"type": "file", "file": without_type(part)}),
        _ => part.clone(),
    };
    Value::Array(parts.as_array().into_iter().flatten().map(part).collect())
}
