//! Explains one call: the message and model answer that led to it, its approval, its attempts and its outcome.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use werkruf_contract::{CallStatus, Runner, Usage, Uuid};
use werkruf_store::{ApprovalFilter, CallRow, MessageRow, Page};

use super::approvals::ApprovalView;
use super::body::PathParam;
use super::calls::{Attempt, attempts, events};
use super::conversations::MessageView;
use super::error::ApiError;
use super::events::EventView;
use super::policy::{ApiCaller, Policy};
use super::timeline::usage_of_call;
use super::view::{Iso, error_detail, raw};
use super::{ApiState, lookup};
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Read.on(routes!(explain)))
}

#[derive(Serialize, ToSchema)]
struct Outcome<'a> {
    #[schema(value_type = String)]
    status: CallStatus,
    /// The tool's `data`.
    #[schema(value_type = Option<Object>)]
    data: Option<&'a RawValue>,
    /// A `ToolErrorDetail`.
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    took_ms: u64,
    cache_hit: bool,
    dedupe_of: Option<Uuid>,
    retry_of: Option<Uuid>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Iso>,
}

#[derive(Serialize, ToSchema)]
struct Explanation<'a> {
    /// The user message that started the turn.
    message: Option<MessageView<'a>>,
    /// The model answer that contains the call.
    model_answer: Option<MessageView<'a>>,
    /// Who runs the call: `server`, `provider` or `client`.
    #[schema(value_type = String)]
    runner: Runner,
    raw_arguments: Option<&'a str>,
    #[schema(value_type = Option<Vec<Object>>)]
    repairs: Option<&'a RawValue>,
    #[schema(value_type = Option<Object>)]
    arguments: Option<&'a RawValue>,
    #[schema(value_type = Option<Object>)]
    permission: Option<&'a RawValue>,
    /// The untrusted results that the model had read before the call: `[{tool, job_id}]`; null if there were none.
    #[schema(value_type = Option<Vec<Object>>)]
    taint: Option<&'a RawValue>,
    /// The approval of the call, if one was needed.
    approval: Option<ApprovalView<'a>>,
    attempts: Vec<Attempt>,
    outcome: Outcome<'a>,
    /// What the call used of models, and its price; null if it used nothing that is counted.
    #[schema(value_type = Option<Object>)]
    usage: Option<Usage>,
    events: Vec<EventView>,
}

/// Explains one call.
#[routing::path(get, path = "/api/tool-calls/{id}/explain", operation_id = "explain_tool_call", tag = "calls", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = Explanation), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn explain(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let (call, turn) = lookup::call(&api, &identity, &id).await?;
    let records = api.app.records();
    let admin = identity.scopes.admin;
    let messages = lookup::messages_of_turn(records, &turn).await?;
    let outcome = Outcome {
        status: call.status,
        data: raw(call.response.as_deref()),
        error: error_detail(call.error_detail.as_deref(), admin),
        took_ms: call.took_ms(),
        cache_hit: call.cache_hit,
        dedupe_of: call.dedupe_of,
        retry_of: call.retry_of,
        finished_at: call.finished_at.map(Iso),
    };
    let filter = ApprovalFilter { turn_id: Some(turn.id), ..ApprovalFilter::default() };
    let approvals = api.app.approvals().approvals(identity.tenant_id, filter, Page::default()).await?;
    let explanation = Explanation {
        approval: approvals.iter().find(|row| row.call_id == call.id).map(ApprovalView::new),
        message: messages.iter().find(|message| message.role == "user").map(MessageView::from),
        model_answer: message_of_call(&messages, &call).map(MessageView::from),
        runner: call.runner,
        raw_arguments: call.raw_arguments.as_deref(),
        repairs: raw(call.repairs.as_deref()),
        arguments: raw(call.request.as_deref()),
        permission: raw(call.permission.as_deref()),
        taint: raw(call.taint.as_deref()),
        attempts: attempts(records, &call, admin).await?,
        outcome,
        usage: usage_of_call(&api, &turn, call.id).await?,
        events: events(api.app.streams(), &call, &turn).await?,
    };
    Ok(Json(explanation).into_response())
}

/// The assistant message that contains the call. The id in the message is `call_<id>` or the id that the model server sent; for a call that the
/// provider asked for, the id of its request.
fn message_of_call<'a>(messages: &'a [MessageRow], call: &CallRow) -> Option<&'a MessageRow> {
    #[derive(Deserialize)]
    struct StoredCall {
        id: String,
    }
    let own_id = format!("call_{}", call.id);
    let holds = |message: &MessageRow, id: &str| {
        let calls: Vec<StoredCall> = message.tool_calls.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        calls.iter().any(|known| known.id == id)
    };
    let with_call = |id: &str| messages.iter().find(|message| holds(message, id));
    let asked = call.item_id.as_deref().filter(|_| call.runner == Runner::Provider);
    with_call(&own_id).or_else(|| call.call_id.as_deref().or(asked).and_then(with_call))
}
