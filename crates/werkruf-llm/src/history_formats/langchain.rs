//! Messages of langchain-core, in the format of `messages_to_dict` and `messages_from_dict`.
//!
//! LangChain stores arguments as objects, separates those that are not JSON, and has no fields for the data of other
//! formats. That data goes into `additional_kwargs.werkruf`, which LangChain keeps unchanged.

use serde_json::{Map, Value, json};

use super::pairs::{Pairing, SYNTHETIC};
use super::{FormatFault, HistoryCall, ResultStatus, Role, StoredMessage, content, text_at};

const METADATA_KEY: &str = "langchain";
const EXTRA_KEY: &str = "werkruf";

pub(super) fn read(values: &[Value], new_id: &mut dyn FnMut() -> String) -> Result<Vec<StoredMessage>, FormatFault> {
    let mut pairing = Pairing::new(new_id);
    let mut messages = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let (kind, data) = shape(value).map_err(|reason| FormatFault::at(at, reason))?;
        let mut message = parse(kind, data).map_err(|reason| FormatFault::at(at, reason))?;
        if message.metadata.get(SYNTHETIC) == Some(&Value::Bool(true)) {
            continue;
        }
        pairing.assign_ids(&mut message);
        let id = data.get("id").filter(|id| !id.is_null()).cloned();
        let input = json!({"type": kind, "data": data});
        let original = if from_columns(&message, id.clone()) == input { id.map(|id| json!({"id": id})) } else { Some(input) };
        if let Some(original) = original {
            message.metadata.insert(METADATA_KEY.to_owned(), original);
        }
        messages.push(message);
    }
    Ok(messages)
}

/// The original message if it still matches the columns; else a message from the columns.
pub(super) fn write(message: &StoredMessage) -> Value {
    let original = message.metadata.get(METADATA_KEY);
    let unchanged = original.filter(|original| {
        let parsed = shape(original).and_then(|(kind, data)| parse(kind, data));
        parsed.is_ok_and(|parsed| parsed.has_same_content(message) && parsed.status == message.status)
    });
    if let Some(unchanged) = unchanged {
        return unchanged.clone();
    }
    let id = original.and_then(|original| original.get("id")).cloned();
    from_columns(message, id.or_else(|| message.id.clone().map(Value::from)))
}

/// A message's type and fields, from any of the three formats that LangChain writes: `messages_to_dict`, `dumpd`, `model_dump`.
fn shape(value: &Value) -> Result<(&str, &Map<String, Value>), String> {
    let object = value.as_object().ok_or("is not a message; write {\"type\": …, \"data\": {…}}")?;
    let data = match (object.get("data"), object.get("kwargs")) {
        (Some(Value::Object(data)), _) => data,
        (None, Some(Value::Object(kwargs))) => kwargs,
        _ => object,
    };
    let class = object.get("id").and_then(|id| id.get(3)).and_then(Value::as_str);
    let kind = match class {
        Some(class) => data.get("type").and_then(Value::as_str).unwrap_or(class),
        None => object.get("type").and_then(Value::as_str).ok_or("has no type")?,
    };
    Ok((kind, data))
}

fn role(kind: &str, data: &Map<String, Value>) -> Result<Role, String> {
    match kind {
        "human" | "HumanMessage" | "HumanMessageChunk" => Ok(Role::User),
        "ai" | "AIMessage" | "AIMessageChunk" => Ok(Role::Assistant),
        "system" | "SystemMessage" | "SystemMessageChunk" => Ok(Role::System),
        "tool" | "ToolMessage" | "ToolMessageChunk" | "function" => Ok(Role::Tool),
        "chat" => Ok(text_at(data, "role").and_then(Role::parse).unwrap_or(Role::User)),
        other => Err(format!("the type {other} is unknown")),
    }
}

fn parse(kind: &str, data: &Map<String, Value>) -> Result<StoredMessage, String> {
    let role = role(kind, data)?;
    let (text, parts) = content::split(data.get("content"));
    let mut message = StoredMessage::text(role, text);
    let extra = data.get("additional_kwargs").and_then(|extra| extra.get(EXTRA_KEY));
    if let Some(Value::Object(metadata)) = extra.and_then(|extra| extra.get("metadata")) {
        message.metadata = metadata.clone();
    }
    if parts.is_some() {
        content::store_parts(&mut message.metadata, parts);
    }
    match role {
        Role::Assistant => message.calls = exact(calls(data), extra.and_then(|extra| extra.get("calls"))),
        Role::Tool => {
            message.call_id = text_at(data, "tool_call_id").map(str::to_owned);
            message.tool_name = text_at(data, "name").map(str::to_owned);
            let failed = data.get("status").and_then(Value::as_str) == Some("error");
            message.status = Some(if failed { ResultStatus::Error } else { ResultStatus::Success });
        }
        Role::User | Role::System => {}
    }
    Ok(message)
}

fn calls(data: &Map<String, Value>) -> Vec<HistoryCall> {
    let list = |name: &str| data.get(name).and_then(Value::as_array).into_iter().flatten();
    list("tool_calls").chain(list("invalid_tool_calls")).map(one_call).collect()
}

fn one_call(value: &Value) -> HistoryCall {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    HistoryCall { id: text("id"), name: text("name"), arguments: super::calls::arguments(value.get("args")) }
}

/// The calls in their original order and spelling, if these are stored and still describe the same calls.
fn exact(calls: Vec<HistoryCall>, stored: Option<&Value>) -> Vec<HistoryCall> {
    let Some(stored) = stored.and_then(Value::as_array) else { return calls };
    let stored: Vec<HistoryCall> = stored.iter().map(one_call).collect();
    let same = |one: &HistoryCall| calls.iter().any(|two| one.id == two.id && one.is_same_call(two));
    if stored.len() == calls.len() && stored.iter().all(same) { stored } else { calls }
}

fn from_columns(message: &StoredMessage, id: Option<Value>) -> Value {
    let kind = match message.role {
        Role::User => "human",
        Role::Assistant => "ai",
        Role::Tool => "tool",
        Role::System => "system",
    };
    let (valid, invalid) = split_calls(&message.calls);
    let mut data = Map::new();
    let mut put = |name: &str, value: Value| drop(data.insert(name.to_owned(), value));
    put("content", content::value(message));
    put("additional_kwargs", json!({}));
    put("response_metadata", json!({}));
    put("type", kind.into());
    let name = if message.role == Role::Tool { message.tool_name.clone() } else { None };
    put("name", name.into());
    put("id", id.unwrap_or(Value::Null));
    match message.role {
        Role::Assistant => {
            put("tool_calls", valid.into());
            put("invalid_tool_calls", invalid.into());
            put("usage_metadata", Value::Null);
        }
        Role::Tool => {
            put("tool_call_id", message.call_id.clone().unwrap_or_default().into());
            put("artifact", Value::Null);
            let failed = message.status == Some(ResultStatus::Error);
            put("status", if failed { "error" } else { "success" }.into());
        }
        Role::User | Role::System => {}
    }
    let extra = extra(message, &data);
    if !extra.is_empty() {
        data.insert("additional_kwargs".to_owned(), json!({EXTRA_KEY: extra}));
    }
    json!({"type": kind, "data": data})
}

/// The data for which LangChain has no fields.
fn extra(message: &StoredMessage, data: &Map<String, Value>) -> Map<String, Value> {
    let mut extra = Map::new();
    let metadata = content::other_metadata(message, METADATA_KEY);
    if !metadata.is_empty() {
        extra.insert("metadata".to_owned(), metadata.into());
    }
    if calls(data) != message.calls {
        let exact = |call: &HistoryCall| json!({"id": call.id, "name": call.name, "args": call.arguments});
        extra.insert("calls".to_owned(), message.calls.iter().map(exact).collect());
    }
    extra
}

/// Calls whose arguments are an object, and the others with LangChain's own error text.
fn split_calls(calls: &[HistoryCall]) -> (Vec<Value>, Vec<Value>) {
    let (mut valid, mut invalid) = (Vec::new(), Vec::new());
    for call in calls {
        let HistoryCall { id, name, arguments } = call;
        match call.object() {
            Some(args) => valid.push(json!({"name": name, "args": args, "id": id, "type": "tool_call"})),
            None => {
                let error = format!("Function {name} arguments:\n\n{arguments}\n\nare not valid JSON.");
                invalid.push(json!({"type": "invalid_tool_call", "id": id, "name": name, "args": arguments, "error": error}));
            }
        }
    }
    (valid, invalid)
}
