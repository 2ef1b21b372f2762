//! `POST /functions/v1/…-flight-search`: one provider each, for programs that called the seed's functions.
//!
//! Both answer in the seed's shape, failures too: `{success: false, error: {type, code, message}}`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::{Failure, Texts, ToolErrorType};
use werkruf_tools::FlightCaller;

use super::error::ApiError;
use super::policy::{Policy, Who};
use super::{Door, body, context};

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Invoke.on(routes!(seats_search))).routes(Policy::Invoke.on(routes!(amadeus_search)))
}

/// Award flights of Seats.aero.
#[utoipa::path(post, path = "/functions/v1/seatsaero-flight-search", tag = "flights", request_body = Object,
    responses((status = 200, body = Object, description = "{success, results, returnResults?, stats}"),
        (status = "4XX", body = Object, description = "{success: false, error}"), (status = "5XX", body = Object)))]
async fn seats_search(State(door): State<Arc<Door>>, Who(who): Who, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let (asked, caller) = read(&door, &who, &headers, body).await?;
    let flights = Arc::clone(&door.app.flights);
    Ok(respond(match asked {
        Ok(asked) => Box::pin(flights.seats_function(asked, &caller)).await,
        Err(failure) => Err(failure),
    }))
}

/// Flight offers of Amadeus, as received.
#[utoipa::path(post, path = "/functions/v1/amadeus-flight-search", tag = "flights", request_body = Object,
    responses((status = 200, body = Object, description = "{success, results, dictionaries}"),
        (status = "4XX", body = Object, description = "{success: false, error}"), (status = "5XX", body = Object)))]
async fn amadeus_search(State(door): State<Arc<Door>>, Who(who): Who, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let (asked, caller) = read(&door, &who, &headers, body).await?;
    let flights = Arc::clone(&door.app.flights);
    Ok(respond(match asked {
        Ok(asked) => Box::pin(flights.amadeus_function(asked, &caller)).await,
        Err(failure) => Err(failure),
    }))
}

async fn read(
    door: &Door,
    who: &crate::identity::Identity,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Result<Value, Failure>, FlightCaller), ApiError> {
    let principal = who.caller()?.principal;
    let locale = context::language(headers).unwrap_or_else(|| principal.locale.clone());
    let zone = TimeZone::get(&principal.time_zone).unwrap_or(TimeZone::UTC);
    let today = door.app.clock.now().to_zoned(zone).date();
    let caller = FlightCaller { tenant_id: principal.tenant_id, today, words: Texts::of(&locale) };
    let asked = match body::bytes(body).await {
        Ok(raw) => body::json::<Value>(&raw),
        Err(error) => Err(error),
    };
    Ok((asked.map_err(|error| Failure::validation("invalid_request", error.message().to_owned())), caller))
}

fn respond(answer: Result<Value, Failure>) -> Response {
    let failure = match answer {
        Ok(said) => return Json(said).into_response(),
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
