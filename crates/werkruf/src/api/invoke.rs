//! `POST /api/tools/{name}/invoke`: calls one tool directly. The status is 200 even if the tool fails.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{ToolOutput, TurnStatus, Uuid};
use werkruf_runtime::{Idempotency, Invoke, InvokeOutcome, InvokeResult, Refusal};

use super::body::{Params, PathParam};
use super::context::ContextHeaders;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::{ApiState, body, context, replay};
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(super) const CALL_ID: HeaderName = HeaderName::from_static("x-tool-call-id");

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Invoke.on(routes!(invoke)))
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct InvokeRequest {
    /// The tool's arguments.
    #[schema(value_type = Object)]
    pub(super) input: Value,
    /// The conversation whose state the tool reads and changes.
    #[serde(default)]
    conversation_id: Option<String>,
    /// The trace id, if no header names one.
    #[serde(default)]
    trace_id: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TraceQuery {
    /// The trace id, if no header names one.
    trace_id: Option<String>,
}

/// Calls one tool and waits for its result.
#[routing::path(post, path = "/api/tools/{name}/invoke", operation_id = "invoke_tool", tag = "tools", request_body = InvokeRequest,
    params(("name" = String, Path, description = "The tool."), TraceQuery, ContextHeaders,
        ("Idempotency-Key" = Option<String>, Header)),
    responses(
        (status = 200, body = ref("#/components/schemas/ToolOutput"), headers(("X-Tool-Call-Id" = String))),
        (status = 202, body = AwaitingApproval, description = "An approval is pending."),
        (status = "4XX", body = ref("#/components/schemas/Error")),
    ))]
async fn invoke(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(tool): PathParam,
    Params(query): Params<TraceQuery>,
    headers: HeaderMap,
    body: body::RequestBody,
) -> Result<Response, ApiError> {
    let caller = identity.caller()?;
    if api.app.runtime.setup().registry.find_for(caller.principal.tenant(), &tool).is_none() {
        return Err(ApiError::unknown_tool(&tool));
    }
    let raw = body::bytes(body).await?;
    let request: InvokeRequest = body::json_with_values(&raw)?;
    let conversation_id =
        request.conversation_id.map(|id| Uuid::parse_str(&id).map_err(|_| ApiError::not_found("conversation"))).transpose()?;
    let trace_id = context::trace_id(&headers, query.trace_id.as_deref(), request.trace_id.as_deref())?;
    let invoke = Invoke {
        caller,
        context: context::context(&api, identity.tenant_id, &headers, trace_id)?,
        idempotency: body::idempotency(&headers, &Idempotency::route_of_tool(&tool), &raw)?,
        tool,
        input: request.input,
        conversation_id,
        observer: None,
    };
    call(&api, invoke, raw.held(), |job_id, outcome| respond(job_id, outcome, identity.scopes.admin)).await
}

/// Makes a direct call, or reads the result of its first request again. `held` is the memory of the request.
pub(crate) async fn call(
    api: &ApiState,
    invoke: Invoke,
    held: impl Send + 'static,
    respond: impl FnOnce(Uuid, InvokeOutcome) -> Response,
) -> Result<Response, ApiError> {
    let (runtime, tenant_id) = (api.app.runtime.clone(), invoke.caller.principal.tenant_id);
    let calling = api.run_detached(async move {
        let _held = held;
        runtime.invoke(invoke).await
    });
    match calling.await? {
        Ok(InvokeResult { job_id, outcome }) => Ok(respond(job_id, outcome)),
        Err(Refusal::Duplicate { turn_id, same_body }) => {
            let (job_id, outcome) = replay::invoke(api, tenant_id, turn_id, same_body).await?;
            let mut response = respond(job_id, outcome);
            replay::mark_replayed(&mut response);
            Ok(response)
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// A call that waits for an approval.
#[derive(Serialize, ToSchema)]
struct AwaitingApproval {
    job_id: Uuid,
    approval_id: Uuid,
    #[schema(value_type = String)]
    status: TurnStatus,
}

fn respond(job_id: Uuid, outcome: InvokeOutcome, admin: bool) -> Response {
    let mut response = match outcome {
        InvokeOutcome::Awaiting { approval_id } => {
            (StatusCode::ACCEPTED, Json(AwaitingApproval { job_id, approval_id, status: TurnStatus::AwaitingApproval })).into_response()
        }
        InvokeOutcome::Done(output) => {
            let output = match *output {
                ToolOutput::Error(mut failed) if !admin => {
                    failed.error = failed.error.for_readers();
                    ToolOutput::Error(failed)
                }
                other => other,
            };
            Json(output).into_response()
        }
    };
    if let Ok(value) = HeaderValue::from_str(&job_id.to_string()) {
        response.headers_mut().insert(CALL_ID, value);
    }
    response
}
