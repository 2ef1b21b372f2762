//! Reads calls of another program (seeds 000 and 004): a `tool_calls` or `tool_call` table, with or without `call_id`.
//!
//! An id from the model provider is imported unchanged. A `call_id` equal to `item_id` is seed 004's fallback, because a provider never
//! sends two equal ids; such a `call_id` is not imported.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use werkruf_contract::{CallKind, CallStatus, Effect, ErrorCode, Failure, Runner, Uuid};

use super::fields::{Fields, spelled};
use super::message::Origin;
use crate::{CallRow, NewCall};

/// A call to import. It gets its turn and step when it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedCall {
    pub(crate) origin: Origin,
    pub(crate) row: CallRow,
}

/// What a call takes from its conversation.
pub(crate) struct Home {
    pub(crate) tenant_id: Uuid,
    pub(crate) conversation_id: Option<Uuid>,
    /// The time of a call without a time of its own.
    pub(crate) made: Timestamp,
}

/// Reads a row; the error is the reason why it cannot be imported.
pub(crate) fn read(mut row: Fields, home: &Home) -> Result<PlannedCall, String> {
    let tool_name = row.text(&["tool_name", "name", "function_name", "tool"]).ok_or("it names no tool")?;
    let origin = Origin { table: row.table.clone(), id: row.id.clone() };
    let made = row.time(&["created_at", "timestamp"]).unwrap_or(home.made);
    let (item_id, mut call_id) = (row.text(&["item_id"]), row.text(&["call_id", "tool_call_id"]));
    if call_id.is_some() && call_id == item_id {
        row.keep("call_id", call_id.take().into());
    }
    let kind = kind(&mut row);
    let (status, fault) = status(&mut row);
    let arguments = row.take(&["arguments_json", "arguments", "request", "args", "input"]);
    let (request, raw_arguments) = arguments.as_ref().map_or((None, None), arguments_of);
    let response = row.json(&["result_json", "result", "response", "output"]).map(|value| value.to_string());
    let error = row.text(&["error", "error_message"]);
    let output_index = row.take(&["output_index"]);
    let place = output_index.as_ref().and_then(Value::as_u64).and_then(|place| u32::try_from(place).ok());
    let updated = row.time(&["updated_at"]);
    let finished = row.time(&["finished_at", "completed_at", "ended_at"]).or(updated).unwrap_or(made);
    let started = row.time(&["started_at"]);
    let sent = started.is_some() || status != CallStatus::Canceled;
    let response_id = row.text(&["response_id"]);
    let failure = failure(status, fault, error.as_deref());
    let new = NewCall {
        id: super::ids::id(home.tenant_id, "tool_calls", &origin.id, made),
        tenant_id: home.tenant_id,
        conversation_id: home.conversation_id,
        turn_id: Uuid::nil(),
        step: 0,
        output_index: place.unwrap_or(0),
        tool_name,
        now: made,
    };
    let row = CallRow {
        response_id,
        kind,
        runner: runner(kind),
        call_id,
        item_id,
        status,
        request,
        raw_arguments,
        response,
        error_type: failure.as_ref().map(|failure| failure.kind.as_str().to_owned()),
        error_code: failure.as_ref().map(|failure| failure.code.to_string()),
        error: error.or_else(|| failure.as_ref().map(|failure| failure.message.clone())),
        error_detail: failure.and_then(|failure| serde_json::to_string(&failure.into_detail(u32::from(sent))).ok()),
        // The effect of the tool is unknown, so the call is never sent again automatically.
        effect: Effect::Once,
        attempt: u32::from(sent),
        trace_id: row.text(&["trace_id"]),
        meta: Some(meta(row, &origin)),
        updated_at: updated.unwrap_or(finished),
        started_at: sent.then(|| started.unwrap_or(made)),
        finished_at: Some(finished),
        ..CallRow::queued(new)
    };
    Ok(PlannedCall { origin, row })
}

/// The columns without a counterpart, under one name.
fn meta(row: Fields, origin: &Origin) -> String {
    let mut imported: Map<String, Value> = row.rest();
    imported.insert("table".to_owned(), origin.table.clone().into());
    imported.insert("id".to_owned(), origin.id.clone());
    json!({"imported": imported}).to_string()
}

fn kind(row: &mut Fields) -> CallKind {
    let Some(named) = row.text(&["type", "kind"]) else { return CallKind::Function };
    let kind = match named.to_lowercase().as_str() {
        "function" | "function_call" => CallKind::Function,
        "mcp" | "mcp_call" => CallKind::Mcp,
        "web_search" | "web_search_call" => CallKind::WebSearch,
        "custom" | "custom_tool_call" => CallKind::Custom,
        other => {
            let kind = if other.starts_with("mcp") { CallKind::Mcp } else { CallKind::Function };
            row.keep("type", named.into());
            return kind;
        }
    };
    if kind.as_str() != named {
        row.keep("type", named.into());
    }
    kind
}

/// The source does not say who ran a call. Only a provider runs MCP calls and web searches.
const fn runner(kind: CallKind) -> Runner {
    match kind {
        CallKind::Mcp | CallKind::WebSearch => Runner::Provider,
        CallKind::Function | CallKind::Custom => Runner::Server,
    }
}

/// The error of a call that had not ended in the source.
const UNFINISHED: &str = "It had not ended when it was imported; whether it was carried out is not known.";

fn status(row: &mut Fields) -> (CallStatus, Option<&'static str>) {
    let named = row.text(&["status"]).unwrap_or_default();
    let (status, fault) = match named.to_lowercase().as_str() {
        "succeeded" | "success" | "completed" | "done" | "ok" => (CallStatus::Succeeded, None),
        "failed" | "error" | "failure" | "incomplete" => (CallStatus::Failed, None),
        "timeout" | "timed_out" => (CallStatus::Timeout, None),
        "canceled" | "cancelled" => (CallStatus::Canceled, None),
        _ => (CallStatus::Failed, Some(UNFINISHED)),
    };
    if status.as_str() != named {
        row.keep("status", named.into());
    }
    (status, fault)
}

fn failure(status: CallStatus, fault: Option<&'static str>, error: Option<&str>) -> Option<Failure> {
    let message = || error.unwrap_or("The other program did not say why.").to_owned();
    match (status, fault) {
        (_, Some(fault)) => Some(Failure::fatal(ErrorCode::OutcomeUnknown, fault)),
        (CallStatus::Failed, None) => Some(Failure::upstream(ErrorCode::UpstreamError, message())),
        (CallStatus::Timeout, None) => Some(Failure::new(werkruf_contract::ToolErrorType::Timeout, ErrorCode::ToolTimeout, message())),
        (CallStatus::Canceled, None) => Some(Failure::fatal(ErrorCode::Canceled, message())),
        (CallStatus::Succeeded | CallStatus::Queued | CallStatus::Running, None) => None,
    }
}

/// The arguments as a JSON object, where they are one, and as they were stored.
fn arguments_of(value: &Value) -> (Option<String>, Option<String>) {
    let raw = spelled(value);
    let object = raw.as_deref().and_then(|raw| serde_json::from_str::<Value>(raw).ok()).filter(Value::is_object);
    (object.map(|object| object.to_string()), raw)
}
