//! Reads messages of another program: from columns where it has them (seed 001), else from the message's metadata.

use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::fields::{Fields, member, read_json, spelled};

const RESULT: [&str; 4] = ["result", "output", "response", "tool_result"];

/// The table and id of a row in the source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Origin {
    pub(crate) table: String,
    pub(crate) id: Value,
}

/// A call inside a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON text.
    pub(crate) args: String,
}

/// A message to import.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    /// `None`: the message was inside another message.
    pub(crate) origin: Option<Origin>,
    pub(crate) made: Option<Timestamp>,
    pub(crate) role: &'static str,
    pub(crate) content: String,
    pub(crate) calls: Vec<ListedCall>,
    pub(crate) call_id: Option<String>,
    pub(crate) tool_name: Option<String>,
    pub(crate) status: Option<&'static str>,
    pub(crate) metadata: Map<String, Value>,
    /// Results that were inside this message; each becomes a message after it.
    pub(crate) results: Vec<Self>,
}

/// Reads a row; the error is the reason why it cannot be imported.
pub(crate) fn read(mut row: Fields) -> Result<Draft, String> {
    let named = row.text(&["role"]).or_else(|| row.text(&["sender", "author", "type"])).ok_or("it has no role")?;
    let mut role = role(&named).ok_or_else(|| format!("the role {named} is unknown"))?;
    let made = row.time(&["created_at", "timestamp", "inserted_at", "date"]);
    let content = row.text(&["content", "text", "message", "body"]).unwrap_or_default();
    let mut metadata = metadata(&mut row);
    let (calls, mut results) = calls(row.json(&["tool_calls"]).as_ref().or_else(|| in_metadata(&metadata)));
    results.extend(
        member(&metadata, &["tool_results", "toolResults", "tool_outputs"]).into_iter().flat_map(list).filter_map(|item| result(&item)),
    );
    let mut answered = std::collections::HashSet::new();
    results.retain(|result| result.call_id.as_ref().is_none_or(|id| id.is_empty() || answered.insert(id.clone())));
    let call_id = row.text(&["tool_call_id"]).or_else(|| inside(&metadata, &["tool_call_id", "toolCallId"]));
    let (mut tool_name, mut status) = (None, None);
    // A program with only the roles user and assistant stores a result as a message with a call id.
    if role == "tool" || (call_id.is_some() && calls.is_empty()) {
        if role != "tool" {
            row.keep("role", named.into());
            role = "tool";
        }
        tool_name = row.text(&["tool_name", "name"]).or_else(|| inside(&metadata, &["tool_name", "toolName", "tool", "name"]));
        let named_status = row.text(&["status"]).or_else(|| inside(&metadata, &["status", "tool_status"]));
        status = named_status.as_deref().and_then(outcome);
        if let Some(unknown) = named_status.filter(|_| status.is_none()) {
            row.keep("status", unknown.into());
        }
    }
    let origin = Origin { table: row.table.clone(), id: row.id.clone() };
    keep_rest(&mut metadata, row);
    Ok(Draft { origin: Some(origin), made, role, content, calls, call_id, tool_name, status, metadata, results })
}

fn role(named: &str) -> Option<&'static str> {
    match named.to_lowercase().as_str() {
        "user" | "human" => Some("user"),
        "assistant" | "ai" | "bot" | "model" => Some("assistant"),
        "tool" | "function" => Some("tool"),
        "system" | "developer" => Some("system"),
        _ => None,
    }
}

/// The status of a result, with seed 001's values.
fn outcome(named: &str) -> Option<&'static str> {
    match named.to_lowercase().as_str() {
        "success" | "succeeded" | "ok" | "completed" | "done" => Some("success"),
        "error" | "failed" | "failure" | "timeout" | "canceled" | "cancelled" => Some("error"),
        "pending" => Some("pending"),
        _ => None,
    }
}

/// The metadata of the message; a value that is not an object is kept as a column.
fn metadata(row: &mut Fields) -> Map<String, Value> {
    match row.json(&["metadata", "meta", "additional_kwargs"]) {
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            row.keep("metadata", other);
            Map::new()
        }
        None => Map::new(),
    }
}

/// Adds the columns without a counterpart to the metadata.
fn keep_rest(metadata: &mut Map<String, Value>, row: Fields) {
    let id = row.id.clone();
    let mut rest = row.rest();
    if spelled(&id).is_none_or(|id| uuid::Uuid::try_parse(&id).is_err()) {
        rest.insert("id".to_owned(), id);
    }
    if let Some(earlier) = metadata.shift_remove("imported") {
        rest.insert("imported".to_owned(), earlier);
    }
    if !rest.is_empty() {
        metadata.insert("imported".to_owned(), rest.into());
    }
}

fn inside(metadata: &Map<String, Value>, names: &[&str]) -> Option<String> {
    member(metadata, names).filter(|value| value.is_string() || value.is_number()).and_then(spelled)
}

fn in_metadata(metadata: &Map<String, Value>) -> Option<&Value> {
    member(metadata, &["tool_calls", "toolCalls", "function_calls", "tool_call", "toolCall", "function_call"])
}

fn list(value: &Value) -> Vec<Value> {
    match read_json(value.clone()) {
        Value::Array(items) => items,
        other => vec![other],
    }
}

/// The calls in a value, and the results inside them.
fn calls(value: Option<&Value>) -> (Vec<ListedCall>, Vec<Draft>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for item in value.into_iter().flat_map(list) {
        let Some(object) = item.as_object() else { continue };
        let function = object.get("function").and_then(Value::as_object).unwrap_or(object);
        let name = member(function, &["name", "tool_name", "toolName", "tool"]).and_then(Value::as_str);
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let id = member(object, &["id", "call_id", "callId", "tool_call_id", "toolCallId"]).and_then(spelled).unwrap_or_default();
        let args = member(function, &["args", "arguments", "input", "parameters", "request"]);
        calls.push(ListedCall { id: id.clone(), name: name.to_owned(), args: args.map_or_else(|| "{}".to_owned(), json_text) });
        if member(object, &RESULT).is_some() || member(object, &["error"]).is_some() {
            results.extend(result(&item).map(|result| Draft { call_id: Some(id), tool_name: Some(name.to_owned()), ..result }));
        }
    }
    (calls, results)
}

/// Arguments as JSON text: unchanged where they are a JSON object or array, else as a JSON string.
fn json_text(value: &Value) -> String {
    match value {
        Value::String(text) => match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) if raw.get().starts_with(['{', '[']) => raw.get().to_owned(),
            Ok(_) | Err(_) => value.to_string(),
        },
        other => other.to_string(),
    }
}

fn result(item: &Value) -> Option<Draft> {
    let object = item.as_object()?;
    let error = member(object, &["error"]);
    let content = member(object, &RESULT).or_else(|| object.get("content")).or(error)?;
    let status = member(object, &["status"]).and_then(Value::as_str).and_then(outcome);
    Some(Draft {
        origin: None,
        made: None,
        role: "tool",
        content: spelled(content).unwrap_or_default(),
        calls: Vec::new(),
        call_id: member(object, &["tool_call_id", "toolCallId", "call_id", "id"]).and_then(spelled),
        tool_name: member(object, &["tool_name", "toolName", "name", "tool"]).and_then(spelled),
        status: status.or(Some(if error.is_some() { "error" } else { "success" })),
        metadata: Map::new(),
        results: Vec::new(),
    })
}

impl Draft {
    /// The `tool_calls` column.
    pub(crate) fn tool_calls(&self) -> Option<String> {
        let one = |call: &ListedCall| format!(r#"{{"id":{},"name":{},"args":{}}}"#, json!(call.id), json!(call.name), call.args);
        (!self.calls.is_empty()).then(|| format!("[{}]", self.calls.iter().map(one).collect::<Vec<_>>().join(",")))
    }
}
