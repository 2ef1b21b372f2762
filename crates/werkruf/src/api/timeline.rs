//! `GET /api/turns/{id}/timeline`: the model requests and the calls of a turn, with their times.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use jiff::SignedDuration;
use serde::Serialize;
use werkruf_contract::{Usage, Uuid};
use werkruf_store::{CallFilter, CallRow, Page, StoreError, TurnRequest, TurnRow};

use super::body::PathParam;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::turns::TurnView;
use super::view::Iso;
use super::{ApiState, lookup};
use crate::hint_feed::first_id;
use crate::routing::{self, ApiRouter, ToSchema, routes};

/// A turn has at most this many calls in its timeline.
const MAX_CALLS: u32 = 1000;
/// Usage rows of a turn may be written so long after its end.
const LATE: SignedDuration = SignedDuration::from_hours(1);

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Read.on(routes!(show)))
}

/// A model request or a call.
#[derive(Serialize, ToSchema)]
struct Span {
    /// `model` or `tool`.
    #[schema(value_type = String)]
    kind: &'static str,
    /// The model or the tool.
    name: String,
    #[schema(value_type = String, format = DateTime)]
    started_at: Iso,
    /// Null while it is in progress, or where it is not known.
    took_ms: Option<i64>,
    /// Of a tool: the status of the call. Of a model: `running`, `succeeded` or `failed`.
    status: String,
    /// Counts from 1.
    step: u32,
    /// The call; for a model, the call whose tool made the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    usage: Option<Usage>,
}

/// A turn and its spans, in the order of their start.
#[derive(Serialize, ToSchema)]
struct Timeline<'a> {
    turn: TurnView<'a>,
    spans: Vec<Span>,
    /// How often another process continued the turn.
    takeovers: u32,
}

/// The model requests and calls of a turn. Only requests whose usage rows still exist are shown.
#[routing::path(get, path = "/api/turns/{id}/timeline", operation_id = "get_turn_timeline", tag = "turns", params(("id" = String, Path)),
    responses((status = 200, body = Timeline), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let turn = lookup::turn(&api, &identity, &id).await?;
    let filter = CallFilter { turn_id: Some(turn.id), ..CallFilter::default() };
    let page = Page { limit: MAX_CALLS, ..Page::default() };
    let calls = api.app.records().calls(identity.tenant_id, filter, page).await?;
    let requests = requests_of(&api, &turn).await?;
    let spans = spans(&turn, &calls, &requests);
    Ok(Json(Timeline { turn: TurnView::new(&turn, identity.scopes.admin), spans, takeovers: turn.takeovers }).into_response())
}

async fn requests_of(api: &ApiState, turn: &TurnRow) -> Result<Vec<TurnRequest>, StoreError> {
    let until = turn.finished_at.and_then(|end| end.checked_add(LATE).ok()).map_or(Uuid::max(), first_id);
    api.app.monitoring_store.turn_requests(turn.tenant_id, turn.id, until).await
}

/// What a call used: the model requests of its tool, and the tool's own price. `None` where it used nothing that is counted.
pub(crate) async fn usage_of_call(api: &ApiState, turn: &TurnRow, call_id: Uuid) -> Result<Option<Usage>, StoreError> {
    let requests = requests_of(api, turn).await?;
    let own = requests.iter().filter(|row| row.call_id == Some(call_id)).map(usage);
    Ok(own.reduce(|sum, one| Usage {
        input_tokens: sum.input_tokens.saturating_add(one.input_tokens),
        cached_tokens: sum.cached_tokens.saturating_add(one.cached_tokens),
        output_tokens: sum.output_tokens.saturating_add(one.output_tokens),
        reasoning_tokens: sum.reasoning_tokens.saturating_add(one.reasoning_tokens),
        total_tokens: sum.total_tokens.saturating_add(one.total_tokens),
        // A request without a price makes the sum unknown.
        cost_usd: sum.cost_usd.zip(one.cost_usd).map(|(sum, one)| sum + one),
        model_calls: sum.model_calls + one.model_calls,
    }))
}

fn spans(turn: &TurnRow, calls: &[CallRow], requests: &[TurnRequest]) -> Vec<Span> {
    let of_model = |request: &&TurnRequest| request.request.operation != "tool";
    let mut spans: Vec<Span> = requests.iter().filter(of_model).map(|request| model_span(turn, calls, requests, request)).collect();
    spans.extend(calls.iter().map(|call| tool_span(call, requests)));
    // Within a millisecond: the request of a step, its calls, the requests of their tools.
    spans.sort_by_key(|span| (span.started_at.0, span.step, span.job_id.is_some(), span.kind == "model"));
    spans
}

fn tool_span(call: &CallRow, requests: &[TurnRequest]) -> Span {
    // The rows of tools with a price; those of models have spans of their own.
    let priced = requests.iter().find(|row| row.call_id == Some(call.id) && row.request.operation == "tool");
    Span {
        kind: "tool",
        name: call.tool_name.clone(),
        started_at: Iso(call.started_at.unwrap_or(call.created_at)),
        took_ms: call.finished_at.map(|_| i64::try_from(call.took_ms()).unwrap_or(i64::MAX)),
        status: call.status.as_str().to_owned(),
        step: call.step,
        job_id: Some(call.id),
        usage: priced.map(usage),
    }
}

fn model_span(turn: &TurnRow, calls: &[CallRow], requests: &[TurnRequest], row: &TurnRequest) -> Span {
    let step = step_of(calls, row);
    Span {
        kind: "model",
        name: row.request.model.clone(),
        started_at: Iso(row.request.at),
        took_ms: row.request.took_ms,
        status: status_of(turn, calls, requests, row, step).to_owned(),
        step,
        job_id: row.call_id,
        usage: Some(usage(row)),
    }
}

/// A request of a tool belongs to the step of its call. A request of the turn itself comes after the calls of all steps before it.
fn step_of(calls: &[CallRow], row: &TurnRequest) -> u32 {
    match row.call_id {
        Some(id) => calls.iter().find(|call| call.id == id).map_or(1, |call| call.step),
        None => calls.iter().filter(|call| is_before(call, row)).map(|call| call.step).max().unwrap_or(0) + 1,
    }
}

/// Whether a call is of an answer before this request. Within a millisecond the ids tell: a request gets its id with its answer, before the calls
/// of that answer get theirs.
fn is_before(call: &CallRow, row: &TurnRequest) -> bool {
    (call.created_at, call.id) < (row.request.at, row.request.id)
}

/// Usage rows have no status. Of the requests of one step, the last one gave the answer, if the step has one.
fn status_of(turn: &TurnRow, calls: &[CallRow], requests: &[TurnRequest], row: &TurnRequest, step: u32) -> &'static str {
    let ended = turn.finished_at.is_some() || row.request.took_ms.is_some();
    let later = |other: &&TurnRequest| {
        other.call_id == row.call_id
            && (other.request.at, other.request.id) > (row.request.at, row.request.id)
            && step_of(calls, other) == step
    };
    let repeated = row.request.operation == "chat" && requests.iter().any(|other| later(&other));
    match (ended, row.call_id) {
        (false, _) => "running",
        (true, _) if repeated => "failed",
        (true, None) if step > turn.step && turn.finished_at.is_some() => "failed",
        (true, _) => "succeeded",
    }
}

fn usage(row: &TurnRequest) -> Usage {
    Usage {
        input_tokens: row.request.tokens_prompt,
        cached_tokens: row.request.tokens_cached,
        output_tokens: row.request.tokens_completion,
        reasoning_tokens: row.tokens_reasoning,
        total_tokens: row.tokens_total,
        cost_usd: row.request.cost_nano_usd.map(Usage::dollars),
        model_calls: u32::from(row.request.operation != "tool"),
    }
}
