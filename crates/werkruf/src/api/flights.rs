//! `POST /functions/v1/…-flight-search`: flight searches with one provider each, for programs that called the functions of the seed.
//!
//! Each is a direct call of a tool, with a row, rights and limits. Both answer in the format of the seed, also for failures:
//! `{success: false, error: {type, code, message}}`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use werkruf_contract::{ErrorCode, ToolErrorDetail, ToolErrorType, ToolOutput, TurnStatus, Uuid};
use werkruf_flights::{AMADEUS_FUNCTION, SEATSAERO_FUNCTION};
use werkruf_runtime::{Idempotency, Invoke, InvokeOutcome};

use super::error::ApiError;
use super::invoke::CALL_ID;
use super::policy::{ApiCaller, Policy};
use super::{ApiState, body, context, invoke};
use crate::routing::{self, ApiRouter, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Invoke.on(routes!(seats_search))).routes(Policy::Invoke.on(routes!(amadeus_search)))
}

/// Searches award flights at Seats.aero.
#[routing::path(post, path = "/functions/v1/seatsaero-flight-search", tag = "flights", request_body = Object,
    responses((status = 200, body = Object, description = "{success, results, returnResults?, stats}"),
        (status = "4XX", body = Object, description = "{success: false, error}"), (status = "5XX", body = Object)))]
async fn seats_search(caller: ApiCaller, headers: HeaderMap, body: body::RequestBody) -> Response {
    search(caller, SEATSAERO_FUNCTION, &headers, body).await.unwrap_or_else(|error| refused(&error))
}

/// Searches flight offers at Amadeus. The offers are returned as Amadeus sent them.
#[routing::path(post, path = "/functions/v1/amadeus-flight-search", tag = "flights", request_body = Object,
    responses((status = 200, body = Object, description = "{success, results, dictionaries}"),
        (status = "4XX", body = Object, description = "{success: false, error}"), (status = "5XX", body = Object)))]
async fn amadeus_search(caller: ApiCaller, headers: HeaderMap, body: body::RequestBody) -> Response {
    search(caller, AMADEUS_FUNCTION, &headers, body).await.unwrap_or_else(|error| refused(&error))
}

async fn search(
    ApiCaller { api, identity }: ApiCaller,
    tool: &str,
    headers: &HeaderMap,
    body: body::RequestBody,
) -> Result<Response, ApiError> {
    let caller = identity.caller()?;
    let raw = body::bytes(body).await?;
    let input = body::json_with_values::<Value>(&raw)?;
    let invoke = Invoke {
        caller,
        context: context::context(&api, identity.tenant_id, headers, context::trace_id(headers, None, None)?)?,
        idempotency: body::idempotency(headers, &Idempotency::route_of_tool(tool), &raw)?,
        tool: tool.to_owned(),
        input,
        conversation_id: None,
        observer: None,
    };
    invoke::call(&api, invoke, raw.held(), respond).await
}

fn respond(job_id: Uuid, outcome: InvokeOutcome) -> Response {
    let mut response = match outcome {
        InvokeOutcome::Done(output) => match *output {
            ToolOutput::Ok(result) => Json(result.data).into_response(),
            ToolOutput::Error(error) => respond_failure(&error.error),
        },
        InvokeOutcome::Awaiting { approval_id } => {
            let waiting = json!({"success": false, "status": TurnStatus::AwaitingApproval, "approval_id": approval_id});
            (StatusCode::ACCEPTED, Json(waiting)).into_response()
        }
    };
    if let Ok(value) = HeaderValue::from_str(&job_id.to_string()) {
        response.headers_mut().insert(CALL_ID, value);
    }
    response
}

fn respond_failure(error: &ToolErrorDetail) -> Response {
    let code = error.code.as_deref().unwrap_or_default();
    let status = match error.kind {
        _ if code == ErrorCode::PermissionDenied.as_str() => StatusCode::FORBIDDEN,
        ToolErrorType::Validation => StatusCode::BAD_REQUEST,
        ToolErrorType::RateLimit => StatusCode::TOO_MANY_REQUESTS,
        ToolErrorType::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ToolErrorType::Upstream | ToolErrorType::Retryable | ToolErrorType::Fatal => StatusCode::BAD_GATEWAY,
    };
    let mut response = failed(status, error.kind, code, &error.message);
    if let Some(wait_ms) = error.retry_after_ms {
        set_retry_after(&mut response, wait_ms.try_into().unwrap_or_default());
    }
    response
}

/// The answer to a request that led to no call, with the status of the error.
fn refused(error: &ApiError) -> Response {
    let mut response = failed(error.status(), error.kind(), error.code(), error.message());
    if let Some(wait_ms) = error.wait_ms() {
        set_retry_after(&mut response, wait_ms);
    }
    response
}

fn set_retry_after(response: &mut Response, wait_ms: u64) {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait_ms.div_ceil(1000).max(1)));
}

fn failed(status: StatusCode, kind: ToolErrorType, code: &str, message: &str) -> Response {
    let error = json!({"type": kind, "code": code, "message": message});
    (status, Json(json!({"success": false, "error": error}))).into_response()
}
