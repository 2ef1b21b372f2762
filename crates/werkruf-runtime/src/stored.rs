//! Stored rows as clients see them: the envelope of a call, and an event's JSON with what its row leaves out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use werkruf_contract::{
    CallResult, CallStatus, ChatMessage, ClientCall, Effect, EventType, Final, FinishReason, Runner, State, ToolError, ToolErrorDetail,
    ToolErrorType, ToolOutput, ToolResult, ToolResultMeta, TurnStatus, Usage, Uuid,
};
use werkruf_store::{CallFilter, CallRow, EventRow, Order, Page, Records, StoreError};

/// More calls than a turn can have.
const ALL_CALLS: u32 = 10_000;

/// A value as JSON text.
pub(crate) fn json(value: &impl Serialize) -> String {
    // The values are plain structs with string keys: writing them cannot fail.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// The fields of a JSON object; none where the value is something else.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The field of `routing` that says that strangers may have written a result.
pub(crate) const UNTRUSTED: &str = "untrusted";

/// What a call row keeps of a tool's reply beside the data.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredMeta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source_counts: Option<BTreeMap<String, u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) routing: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_usage: Option<BTreeMap<String, i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state_patch: Option<State>,
}

impl StoredMeta {
    /// As the row keeps it; `None` where there is nothing to keep.
    pub(crate) fn to_column(&self) -> Option<String> {
        let empty = self.source_counts.is_none()
            && self.routing.is_none()
            && self.token_usage.is_none()
            && self.message.is_none()
            && self.state_patch.is_none();
        if empty { None } else { serde_json::to_string(self).ok() }
    }

    /// Whether strangers may have written the result.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.routing.as_ref().is_some_and(|routing| routing.get(UNTRUSTED) == Some(&Value::Bool(true)))
    }

    pub(crate) fn of(row: &CallRow) -> Self {
        row.meta.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// The row of a `final` event: ids and text. Results and state are joined when it is read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredFinal {
    pub(crate) conversation_id: Uuid,
    pub(crate) turn_id: Uuid,
    pub(crate) created: bool,
    pub(crate) status: TurnStatus,
    pub(crate) message: ChatMessage,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) client_calls: Vec<ClientCall>,
    #[serde(default)]
    pub(crate) finish_reason: FinishReason,
    pub(crate) usage: Usage,
}

impl StoredFinal {
    /// The event that clients receive.
    pub(crate) fn complete(self, session_state: State, tool_results: Vec<CallResult<Box<RawValue>>>) -> Final<Box<RawValue>> {
        let tool_result = tool_results.iter().rev().find(|call| call.status == CallStatus::Succeeded).and_then(|call| call.data.clone());
        Final {
            conversation_id: self.conversation_id,
            chat_id: self.conversation_id,
            turn_id: self.turn_id,
            created: self.created,
            status: self.status,
            message: self.message,
            session_state,
            tool_result,
            tool_results,
            client_calls: self.client_calls,
            finish_reason: self.finish_reason,
            usage: self.usage,
        }
    }
}

/// An event's JSON as clients see it.
pub async fn complete_event(records: &dyn Records, tenant_id: Uuid, stream_id: Uuid, row: &EventRow) -> Result<String, StoreError> {
    if row.kind != EventType::Final {
        return Ok(row.data.clone());
    }
    let stored: StoredFinal = serde_json::from_str(&row.data).map_err(|error| StoreError::Broken(error.to_string()))?;
    let filter = CallFilter { turn_id: Some(stored.turn_id), ..CallFilter::default() };
    let mut calls = records.calls(tenant_id, filter, Page::of(ALL_CALLS, Order::OldestFirst)).await?;
    calls.sort_unstable_by_key(|call| (call.step, call.output_index));
    calls.retain(|call| !is_provider_run(call));
    let state = records.conversation(tenant_id, stream_id).await?.map(|conversation| conversation.state).unwrap_or_default();
    let complete = stored.complete(state, calls.iter().map(result_of).collect());
    serde_json::to_string(&complete).map_err(|error| StoreError::Broken(error.to_string()))
}

/// A stored call's part of the `final` event.
fn result_of(call: &CallRow) -> CallResult<Box<RawValue>> {
    CallResult {
        job_id: call.id,
        call_id: call.call_id.clone(),
        tool: call.tool_name.clone(),
        status: call.status,
        took_ms: call.took_ms(),
        cache_hit: call.cache_hit,
        data: call.response.clone().and_then(|text| RawValue::from_string(text).ok()),
        error: detail_of(call).map(ToolErrorDetail::for_readers),
    }
}

fn detail_of(call: &CallRow) -> Option<ToolErrorDetail> {
    call.error_detail.as_deref().and_then(|text| serde_json::from_str(text).ok())
}

/// The envelope of a stored call.
pub fn output_of(call: &CallRow) -> ToolOutput {
    let parsed = |text: &Option<String>| text.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let input = parsed(&call.request).or_else(|| parsed(&call.raw_arguments)).unwrap_or(Value::Null);
    if call.status == CallStatus::Succeeded {
        let stored = StoredMeta::of(call);
        let mut routing = stored.routing;
        if let Some(patch) = stored.state_patch {
            routing.get_or_insert_default().insert("state_patch".to_owned(), Value::Object(patch));
        }
        let meta = ToolResultMeta {
            took_ms: call.took_ms(),
            source_counts: stored.source_counts,
            routing,
            cache_hit: call.cache_hit.then_some(true),
            token_usage: stored.token_usage,
        };
        return ToolOutput::Ok(ToolResult::new(input, call.response_value(), meta));
    }
    let detail = detail_of(call).unwrap_or_else(|| ToolErrorDetail {
        kind: ToolErrorType::Retryable,
        message: format!("The call is {}.", call.status),
        code: Some("running".to_owned()),
        cause: None,
        details: None,
        retry_after_ms: None,
        upstream_status: None,
        endpoint: None,
        attempt: None,
    });
    ToolOutput::Error(ToolError::new(input, detail, call.took_ms()))
}

/// Whether the provider runs this call itself.
pub(crate) fn is_provider_run(row: &CallRow) -> bool {
    row.runner == Runner::Provider
}

/// Whether the provider runs this call itself once it is approved. What it runs without asking counts as `read`.
pub(crate) fn is_provider_request(row: &CallRow) -> bool {
    is_provider_run(row) && row.effect == Effect::Once
}
