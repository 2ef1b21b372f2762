//! One HTTP request of a client: checked and read here, answered by the SDK.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;

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
    let request = Request::from_parts(parts, Body::from(content));
    let response = sessions.for_owner(owner, api.mcp.service.handle(request)).await;
    let response = response.map(Body::new);
    if response.status().is_client_error() && !is_json(response.headers()) { Err(refusal(response).await) } else { Ok(response) }
}

fn is_initialize(raw: &RawBody) -> bool {
    serde_json::from_slice::<Message<'_>>(raw).is_ok_and(|message| message.method.as_deref() == Some("initialize"))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.starts_with("application/json"))
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
