//! Messages of Chat Completions.

use serde_json::{Map, Value, json};

use super::pairs::Pairing;
use super::{FormatFault, HistoryCall, ResultStatus, Role, StoredMessage, calls, content, text_at};

const METADATA_KEY: &str = "openai";

pub(super) fn read(values: &[Value], new_id: &mut dyn FnMut() -> String) -> Result<Vec<StoredMessage>, FormatFault> {
    let mut pairing = Pairing::new(new_id);
    let mut messages = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let mut message = parse(value).map_err(|reason| FormatFault::at(at, reason))?;
        pairing.assign_ids(&mut message);
        if from_columns(&message) != *value {
            message.metadata.insert(METADATA_KEY.to_owned(), value.clone());
        }
        messages.push(message);
    }
    Ok(messages)
}

/// The original message if it still matches the columns; else a message from the columns.
pub(super) fn write(message: &StoredMessage) -> Value {
    let original =
        message.metadata.get(METADATA_KEY).filter(|original| parse(original).is_ok_and(|parsed| parsed.has_same_content(message)));
    original.cloned().unwrap_or_else(|| from_columns(message))
}

fn parse(value: &Value) -> Result<StoredMessage, String> {
    let object = value.as_object().ok_or("is not a message; write {\"role\": …, \"content\": …}")?;
    let role = match object.get("role").and_then(Value::as_str) {
        Some("developer") => Role::System,
        Some("function") => Role::Tool,
        Some(role) => Role::parse(role).ok_or_else(|| format!("the role {role} is unknown"))?,
        None => return Err("has no role".to_owned()),
    };
    let (text, parts) = content::split(object.get("content"));
    let mut message = StoredMessage::text(role, text);
    content::store_parts(&mut message.metadata, parts);
    match role {
        Role::Assistant => {
            // A refusal takes the place of the content.
            if message.content.is_empty()
                && let Some(refusal) = text_at(object, "refusal")
            {
                refusal.clone_into(&mut message.content);
            }
            let calls = object.get("tool_calls").and_then(Value::as_array);
            message.calls = calls.into_iter().flatten().map(call).collect();
        }
        Role::Tool => {
            message.call_id = text_at(object, "tool_call_id").map(str::to_owned);
            message.tool_name = text_at(object, "name").map(str::to_owned);
            message.status = Some(ResultStatus::Success);
        }
        Role::User | Role::System => {}
    }
    Ok(message)
}

fn call(value: &Value) -> HistoryCall {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, arguments) = match &value["custom"] {
        Value::Object(custom) => (custom.get("name"), calls::custom_arguments(custom.get("input"))),
        _ => (value["function"].get("name"), calls::arguments(value["function"].get("arguments"))),
    };
    HistoryCall { id: text(&value["id"]), name: name.map(text).unwrap_or_default(), arguments }
}

fn from_columns(message: &StoredMessage) -> Value {
    let mut out = Map::new();
    out.insert("role".to_owned(), message.role.as_str().into());
    let calls_only = message.role == Role::Assistant && message.content.is_empty() && !message.calls.is_empty();
    out.insert("content".to_owned(), if calls_only { Value::Null } else { content::value(message) });
    if !message.calls.is_empty() {
        let call =
            |call: &HistoryCall| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}});
        out.insert("tool_calls".to_owned(), message.calls.iter().map(call).collect());
    }
    if message.role == Role::Tool {
        out.insert("tool_call_id".to_owned(), message.call_id.clone().into());
    }
    Value::Object(out)
}
