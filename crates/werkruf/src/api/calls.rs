//! Tool calls: list, show, cancel, retry.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{CallStatus, Uuid};
use werkruf_runtime::Caller;
use werkruf_store::{CallFilter, CallRow, Records, Streams, TurnRow};

use super::body::{Params, PathParam};
use super::call_view::CallView;
use super::error::ApiError;
use super::events::EventView;
use super::page::{self, PageQuery};
use super::policy::{ApiCaller, Policy};
use super::view::{Iso, error_detail};
use super::{ApiState, body, lookup};
use crate::identity::{Identity, Visibility};
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Read.on(routes!(list)))
        .routes(Policy::Read.on(routes!(show)))
        .routes(Policy::StopCall.on(routes!(cancel)))
        .routes(Policy::RetryCall.on(routes!(retry)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CallQuery {
    conversation_id: Option<String>,
    turn_id: Option<String>,
    tool: Option<String>,
    /// `queued`, `running`, `succeeded`, `failed`, `timeout` or `canceled`.
    status: Option<String>,
}

impl CallQuery {
    fn filter(self, visibility: Visibility) -> Result<CallFilter, ApiError> {
        // The ids that clients of OpenAI's API know have a prefix.
        let id = |name: &str, prefix: &str, text: Option<String>| {
            let wrong = || ApiError::invalid(format!("{name} takes a UUID."));
            text.map(|text| Uuid::parse_str(text.strip_prefix(prefix).unwrap_or(&text)).map_err(|_| wrong())).transpose()
        };
        let status = self.status.map(|text| {
            CallStatus::parse(&text)
                .ok_or_else(|| ApiError::invalid("status takes queued, running, succeeded, failed, timeout or canceled."))
        });
        Ok(CallFilter {
            conversation_id: id("conversation_id", "conv_", self.conversation_id)?,
            turn_id: id("turn_id", "resp_", self.turn_id)?,
            user_id: match visibility {
                Visibility::All => None,
                Visibility::Own(own) => Some(own),
            },
            tool: self.tool,
            status: status.transpose()?,
        })
    }
}

#[derive(Serialize, ToSchema)]
struct CallList<'a> {
    tool_calls: Vec<CallView<'a>>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// The caller's own calls; all calls of the tenant with scope admin.
#[routing::path(get, path = "/api/tool-calls", operation_id = "list_tool_calls", tag = "calls", params(CallQuery, PageQuery),
    responses((status = 200, body = CallList)))]
async fn list(
    ApiCaller { api, identity }: ApiCaller,
    Params(query): Params<CallQuery>,
    Params(pages): Params<PageQuery>,
) -> Result<Response, ApiError> {
    let page = pages.page()?;
    let filter = query.filter(identity.visibility()?)?;
    let rows = api.app.records().calls(identity.tenant_id, filter, page).await?;
    let tool_calls = rows.iter().map(|row| CallView::new(row, identity.scopes.admin)).collect();
    Ok(Json(CallList { tool_calls, next_after: page::next_after(&rows, &page, |row| row.id) }).into_response())
}

/// One attempt of a call.
#[derive(Serialize, ToSchema)]
pub(crate) struct Attempt {
    attempt: u32,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Iso>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Iso>,
    #[schema(value_type = String)]
    status: CallStatus,
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
}

/// Every attempt: the stored earlier ones, and the last one, which the row of the call describes.
pub(crate) async fn attempts(records: &dyn Records, call: &CallRow, admin: bool) -> Result<Vec<Attempt>, ApiError> {
    let stored = records.attempts(call.tenant_id, call.id).await?;
    let mut attempts: Vec<Attempt> = stored
        .into_iter()
        .map(|row| Attempt {
            attempt: row.attempt,
            started_at: Some(Iso(row.started_at)),
            finished_at: Some(Iso(row.finished_at)),
            status: row.status,
            error: error_detail(Some(&row.error), admin),
        })
        .collect();
    if call.attempt >= 1 && attempts.iter().all(|known| known.attempt < call.attempt) {
        attempts.push(Attempt {
            attempt: call.attempt,
            started_at: call.started_at.map(Iso),
            finished_at: call.finished_at.map(Iso),
            status: call.status,
            error: error_detail(call.error_detail.as_deref(), admin),
        });
    }
    Ok(attempts)
}

/// The events of a call.
pub(crate) async fn events(streams: &dyn Streams, call: &CallRow, turn: &TurnRow) -> Result<Vec<EventView>, ApiError> {
    #[derive(Deserialize)]
    struct Job {
        job_id: Option<Uuid>,
    }
    let stream_id = lookup::stream_of(turn);
    let rows = lookup::all_events(streams, call.tenant_id, stream_id, Some(turn.id), 0).await?;
    let mut events = Vec::new();
    for row in rows {
        if serde_json::from_str::<Job>(&row.data).is_ok_and(|job| job.job_id == Some(call.id)) {
            let data = serde_json::value::RawValue::from_string(row.data).map_err(|error| page::serialize_error(&error))?;
            events.push(EventView { seq: row.seq, kind: row.kind.as_str(), data, turn_id: row.turn_id, created_at: Iso(row.created_at) });
        }
    }
    Ok(events)
}

/// A call with its attempts and events.
#[derive(Serialize, ToSchema)]
struct CallDetail<'a> {
    #[serde(flatten)]
    call: CallView<'a>,
    attempts: Vec<Attempt>,
    events: Vec<EventView>,
}

/// One call with every column.
#[routing::path(get, path = "/api/tool-calls/{id}", operation_id = "get_tool_call", tag = "calls", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = CallDetail), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let (call, turn) = lookup::call(&api, &identity, &id).await?;
    let records = api.app.records();
    let detail = CallDetail {
        attempts: attempts(records, &call, identity.scopes.admin).await?,
        events: events(api.app.streams(), &call, &turn).await?,
        call: CallView::new(&call, identity.scopes.admin),
    };
    Ok(Json(detail).into_response())
}

#[derive(Serialize, ToSchema)]
struct Job {
    job_id: Uuid,
}

/// Requests the cancellation of a call.
#[routing::path(post, path = "/api/tool-calls/{id}/cancel", operation_id = "cancel_tool_call", tag = "calls", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 202, body = Job), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`already_finished`")))]
async fn cancel(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let (call, _) = lookup::call(&api, &identity, &id).await?;
    if call.status.is_terminal() || !api.app.runtime.cancel_call(identity.tenant_id, call.id).await? {
        return Err(ApiError::conflict("already_finished", "The call has ended already."));
    }
    Ok((StatusCode::ACCEPTED, Json(Job { job_id: call.id })).into_response())
}

#[derive(Debug, Default, Deserialize, ToSchema)]
struct RetryRequest {
    /// Whether to retry even if the outcome of the first call is unknown.
    #[serde(default)]
    force: bool,
}

/// Runs a failed call again, as a new call for the same user.
#[routing::path(post, path = "/api/tool-calls/{id}/retry", operation_id = "retry_tool_call", tag = "calls", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    request_body = RetryRequest,
    responses((status = 202, body = Job), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`not_retryable`, `outcome_unknown`, `already_retried`")))]
async fn retry(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam, body: body::RequestBody) -> Result<Response, ApiError> {
    let (call, turn) = lookup::call(&api, &identity, &id).await?;
    let raw = body::bytes(body).await?;
    let RetryRequest { force } = if raw.is_empty() { RetryRequest::default() } else { body::json(&raw)? };
    let caller = owner(&api, &identity, &turn).await?;
    let runtime = api.app.runtime.clone();
    let job_id = api.run_detached(async move { runtime.retry_call(&caller, call.id, force).await }).await??;
    Ok((StatusCode::ACCEPTED, Json(Job { job_id })).into_response())
}

/// The user that a call belongs to. A retry runs with that user's rights, also when an admin requests it.
async fn owner(api: &ApiState, identity: &Identity, turn: &TurnRow) -> Result<Caller, ApiError> {
    let principal = api.app.people().principal(identity.tenant_id, turn.user_id.clone()).await?;
    let principal = principal.ok_or_else(|| ApiError::forbidden("unknown_user", "The user of this call does not exist any more."))?;
    Ok(identity.caller_for(principal))
}
