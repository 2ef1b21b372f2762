//! Messages of langchain-core, as `messages_to_dict` gives and `messages_from_dict` takes them.
//!
//! LangChain keeps arguments as objects, apart from those that are no JSON, and has no place for what other formats
//! say. That travels in `additional_kwargs.werkruf`, which LangChain carries along untouched.

use serde_json::{Map, Value, json};

use super::pairs::{MADE_UP, Pairing};
use super::{FormatFault, HistoryCall, ResultStatus, Role, StoredMessage, content, text_at};

const KEPT: &str = "langchain";
const OURS: &str = "werkruf";

pub(super) fn read(values: &[Value], fresh: &mut dyn FnMut() -> String) -> Result<Vec<StoredMessage>, FormatFault> {
    let mut pairing = Pairing::new(fresh);
    let mut messages = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let (kind, data) = shape(value).map_err(|reason| FormatFault::at(at, reason))?;
        let mut message = parse(kind, data).map_err(|reason| FormatFault::at(at, reason))?;
        if message.metadata.get(MADE_UP) == Some(&Value::Bool(true)) {
            continue;
        }
        pairing.settle(&mut message);
        let id = data.get("id").filter(|id| !id.is_null()).cloned();
        let whole = json!({"type": kind, "data": data});
        let kept = if natural(&message, id.clone()) == whole { id.map(|id| json!({"id": id})) } else { Some(whole) };
        if let Some(kept) = kept {
            message.metadata.insert(KEPT.to_owned(), kept);
        }
        messages.push(message);
    }
    Ok(messages)
}

/// What was read, while it still says the same; else what the columns say.
pub(super) fn write(message: &StoredMessage) -> Value {
    let kept = message.metadata.get(KEPT);
    let whole = kept.filter(|kept| {
        let said = shape(kept).and_then(|(kind, data)| parse(kind, data));
        said.is_ok_and(|said| said.says_the_same(message) && said.status == message.status)
    });
    if let Some(whole) = whole {
        return whole.clone();
    }
    let id = kept.and_then(|kept| kept.get("id")).cloned();
    natural(message, id.or_else(|| message.id.clone().map(Value::from)))
}

/// A message's type and fields, from any of the three shapes LangChain writes: `messages_to_dict`, `dumpd`, `model_dump`.
fn shape(value: &Value) -> Result<(&str, &Map<String, Value>), String> {
    let object = value.as_object().ok_or("is no message; write {\"type\": …, \"data\": {…}}")?;
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
    let ours = data.get("additional_kwargs").and_then(|extra| extra.get(OURS));
    if let Some(Value::Object(metadata)) = ours.and_then(|ours| ours.get("metadata")) {
        message.metadata = metadata.clone();
    }
    if parts.is_some() {
        content::keep(&mut message.metadata, parts);
    }
    match role {
        Role::Assistant => message.calls = exact(calls(data), ours.and_then(|ours| ours.get("calls"))),
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

/// The calls in their first order and spelling, where these are known and still the same calls.
fn exact(said: Vec<HistoryCall>, spelled: Option<&Value>) -> Vec<HistoryCall> {
    let Some(spelled) = spelled.and_then(Value::as_array) else { return said };
    let spelled: Vec<HistoryCall> = spelled.iter().map(one_call).collect();
    let same = |one: &HistoryCall| said.iter().any(|two| one.id == two.id && one.asks_the_same(two));
    if spelled.len() == said.len() && spelled.iter().all(same) { spelled } else { said }
}

fn natural(message: &StoredMessage, id: Option<Value>) -> Value {
    let kind = match message.role {
        Role::User => "human",
        Role::Assistant => "ai",
        Role::Tool => "tool",
        Role::System => "system",
    };
    let (valid, invalid) = split_calls(&message.calls);
    let mut data = Map::new();
    let mut put = |name: &str, value: Value| drop(data.insert(name.to_owned(), value));
    put("content", content::whole(message));
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
    let ours = ours(message, &data);
    if !ours.is_empty() {
        data.insert("additional_kwargs".to_owned(), json!({OURS: ours}));
    }
    json!({"type": kind, "data": data})
}

/// What the fields cannot say.
fn ours(message: &StoredMessage, data: &Map<String, Value>) -> Map<String, Value> {
    let mut ours = Map::new();
    let metadata = content::beside(message, KEPT);
    if !metadata.is_empty() {
        ours.insert("metadata".to_owned(), metadata.into());
    }
    if calls(data) != message.calls {
        let spelled = |call: &HistoryCall| json!({"id": call.id, "name": call.name, "args": call.arguments});
        ours.insert("calls".to_owned(), message.calls.iter().map(spelled).collect());
    }
    ours
}

/// Calls with an object for arguments, and those without, with LangChain's own words about them.
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
