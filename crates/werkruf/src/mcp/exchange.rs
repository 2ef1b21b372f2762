//! One HTTP request of a client: checked and read here, answered by the SDK.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::origin;
use super::request::HeldBody;
use super::sessions::{SESSION_ID, SessionOwner};
use crate::api::body::{self, RawBody, RequestBody};
use crate::api::policy::Authenticated;
use crate::api::{ApiError, ApiState};

/// The SDK explains a refusal in one sentence.
const MAX_REASON: usize = 4096;
/// Headers with credentials. The SDK does not need them, and its log must not have them.
const CREDENTIALS: [&str; 5] = ["authorization", "cookie", "apikey", "api-key", "x-api-key"];

/// Codes of JSON-RPC.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;

/// The method of a message.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
}

/// Answers a request.
pub(super) async fn exchange(api: Arc<ApiState>, request: Request) -> Result<Response, ApiError> {
    origin::check(&api.app.config, request.uri(), request.headers())?;
    let unauthenticated = || ApiError::unauthorized("This route needs a key.");
    let Authenticated(identity) = request.extensions().get::<Authenticated>().cloned().ok_or_else(unauthenticated)?;
    let owner = SessionOwner::of(&identity);
    let (sessions, has_session) = (&api.mcp.sessions, request.headers().contains_key(SESSION_ID));
    if has_session {
        sessions.check_owner(request.headers(), &owner)?;
    }
    let (mut parts, body) = request.into_parts();
    let content = if parts.method == Method::POST {
        let Ok(unread) = RequestBody::from_request(Request::from_parts(parts.clone(), body), &api).await;
        let raw = body::bytes(unread).await?;
        raw.reserve_json()?;
        if !has_session && is_initialize(&raw) {
            sessions.check_room(&owner)?;
        }
        let bytes = raw.bytes();
        parts.extensions.insert(HeldBody(raw));
        bytes
    } else {
        Bytes::new()
    };
    for name in CREDENTIALS {
        parts.headers.remove(name);
    }
    parts.extensions.insert(Arc::clone(&api));
    let (method, sends_json) = (parts.method.clone(), is_json(&parts.headers));
    let request = Request::from_parts(parts, Body::from(content.clone()));
    let response = sessions.for_owner(owner, api.mcp.service.handle(request)).await;
    let mut response = response.map(Body::new);
    // The SDK says 202 for an ended session. Clients take that for a failure.
    if method == Method::DELETE && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    // The SDK calls a body that is no message a wrong media type, also where the type is right.
    if sends_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return Ok(no_message(&content));
    }
    if response.status().is_client_error() && !is_json(response.headers()) { Err(refusal(response).await) } else { Ok(response) }
}

fn is_initialize(raw: &RawBody) -> bool {
    serde_json::from_slice::<Message<'_>>(raw).is_ok_and(|message| message.method.as_deref() == Some("initialize"))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.starts_with("application/json"))
}

/// The error of the protocol for a body that is no message: no JSON, a batch, or something else.
fn no_message(body: &[u8]) -> Response {
    let (code, id, message) = match serde_json::from_slice::<Value>(body) {
        Err(_) => (PARSE_ERROR, Value::Null, "The body is not JSON."),
        Ok(Value::Array(_)) => (INVALID_REQUEST, Value::Null, "Batches are not part of the protocol; send one message per request."),
        Ok(mut other) => {
            let id = other.get_mut("id").map(Value::take).filter(|id| id.is_string() || id.is_number());
            (INVALID_REQUEST, id.unwrap_or_default(), "The body is no message of the protocol.")
        }
    };
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    (StatusCode::BAD_REQUEST, Json(error)).into_response()
}

/// The SDK refuses some requests with plain text. Every error of this server is JSON.
async fn refusal(response: Response) -> ApiError {
    let status = response.status();
    let mut chunks = response.into_body().into_data_stream();
    let mut text = Vec::new();
    while let Some(Ok(chunk)) = chunks.next().await {
        text.extend_from_slice(&chunk[..chunk.len().min(MAX_REASON - text.len())]);
        if text.len() >= MAX_REASON {
            break;
        }
    }
    let code = match status {
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        _ => "invalid_request",
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    ApiError::new(status, code, if text.is_empty() { "The request does not follow the protocol.".to_owned() } else { text })
}
