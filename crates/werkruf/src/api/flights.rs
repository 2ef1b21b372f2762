//! `POST /functions/v1/…-flight-search`: flight searches with one provider each, for programs that called the functions of the seed.
//!
//! Both answer in the format of the seed, also for failures: `{success: false, error: {type, code, message}}`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::{Failure, Texts, ToolErrorType};
use werkruf_flights::Caller;

use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::{ApiState, body, context};

pub(crate) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::default().routes(Policy::Invoke.on(routes!(seats_search))).routes(Policy::Invoke.on(routes!(amadeus_search)))
}

/// Searches award flights at Seats.aero.
#[utoipa::path(post, path = "/functions/v1/seatsaero-flight-search", tag = "flights", request_body = Object,
    responses((status = 200, body = Object, description = "{success, results, returnResults?, stats}"),
        (status = "4XX", body = Object, description = "{success: false, error}"), (status = "5XX", body = Object)))]
async fn seats_search(ApiCaller { api, identity }: ApiCaller, headers: HeaderMap, body: body::RequestBody) -> Result<Response, ApiError> {
    let (request, caller) = read(&api, &identity, &headers, body).await?;
    let flights = Arc::clone(&api.app.modules.flights);
    Ok(respond(match request {
        Ok(request) => Box::pin(flights.seats_function(request, &caller)).await,
        Err(failure) => Err(failure),
    }))
}

/// Searches flight offers at Amadeus. The offers are returned as Amadeus sent them.
#[utoipa::path(post, path = "/functions/v1/amadeus-flight-search", tag = "flights", request_body = Object,
    responses((status = 200, body = Object, description = "{success, results, dictionaries}"),
        (status = "4XX", body = Object, description = "{success: false, error}"), (status = "5XX", body = Object)))]
async fn amadeus_search(ApiCaller { api, identity }: ApiCaller, headers: HeaderMap, body: body::RequestBody) -> Result<Response, ApiError> {
    let (request, caller) = read(&api, &identity, &headers, body).await?;
    let flights = Arc::clone(&api.app.modules.flights);
    Ok(respond(match request {
        Ok(request) => Box::pin(flights.amadeus_function(request, &caller)).await,
        Err(failure) => Err(failure),
    }))
}

async fn read(
    api: &ApiState,
    identity: &crate::identity::Identity,
    headers: &HeaderMap,
    body: body::RequestBody,
) -> Result<(Result<Value, Failure>, Caller), ApiError> {
    let principal = identity.caller()?.principal;
    let locale = context::language(headers).unwrap_or_else(|| principal.locale.clone());
    let zone = TimeZone::get(&principal.time_zone).unwrap_or(TimeZone::UTC);
    let today = api.app.clock.now().to_zoned(zone).date();
    let caller = Caller { tenant_id: principal.tenant_id, today, texts: Texts::of(&locale) };
    let request = match body::bytes(body).await {
        Ok(raw) => body::json_with_values::<Value>(&raw),
        Err(error) => Err(error),
    };
    Ok((request.map_err(|error| Failure::validation("invalid_request", error.message().to_owned())), caller))
}

fn respond(answer: Result<Value, Failure>) -> Response {
    let failure = match answer {
        Ok(results) => return Json(results).into_response(),
        Err(failure) => failure,
    };
    let status = match failure.kind {
        ToolErrorType::Validation => StatusCode::BAD_REQUEST,
        ToolErrorType::RateLimit => StatusCode::TOO_MANY_REQUESTS,
        ToolErrorType::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ToolErrorType::Upstream | ToolErrorType::Retryable | ToolErrorType::Fatal => StatusCode::BAD_GATEWAY,
    };
    let error = json!({"type": failure.kind, "code": failure.code, "message": failure.message});
    let mut response = (status, Json(json!({"success": false, "error": error}))).into_response();
    if let Some(wait) = failure.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    response
}
