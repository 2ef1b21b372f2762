//! Adds the request id to every response, and the body to an error response.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use tokio::time::Instant;

use super::ApiState;
use super::error::ApiError;
use crate::openai::error_body;
use crate::openai_path::is_openai_path;
use crate::request_id;

/// How long a request under `/v1` took, as OpenAI's clients read it.
const PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");

/// The outermost layer.
pub async fn envelope(State(api): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    let openai = is_openai_path(request.uri().path());
    let id = request_id::sane(request.headers()).map_or_else(|| api.app.clock.new_id().to_string(), str::to_owned);
    let started = Instant::now();
    let mut response = next.run(request).await;
    if openai {
        // Of a stream: the time until it begins.
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        response.headers_mut().insert(PROCESSING_MS, millis.into());
    }
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        if error.status().is_server_error() {
            // What failed was logged where it failed; this line says whose request it was.
            tracing::warn!(
                request_id = id,
                code = error.code(),
                status = error.status().as_u16(),
                "a request was answered with an error of the server"
            );
        }
        *response.body_mut() = Body::from(if openai { error_body::body(&error).to_string().into_bytes() } else { error.body(&id) });
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().remove(http::header::CONTENT_LENGTH);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(request_id::HEADER, value);
    }
    response
}

/// The response for an unknown path.
pub async fn unknown_route(uri: Uri) -> Response {
    ApiError::new(StatusCode::NOT_FOUND, "unknown_route", format!("There is no route {}; see /openapi.json.", uri.path())).into_response()
}

/// The response for a known path with a method it does not support.
pub async fn method_not_allowed(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    if is_openai_path(uri.path()) && upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")) {
        let message = "The WebSocket form of this API is not available here; send requests with POST, and read streams with stream: true.";
        return ApiError::new(StatusCode::BAD_REQUEST, "websocket_unsupported", message).into_response();
    }
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not take {method}; see /openapi.json.", uri.path()),
    )
    .into_response()
}

/// The response for a handler that panicked. The panic message goes to the log only.
#[expect(clippy::needless_pass_by_value, reason = "the signature is the panic layer's")]
pub fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let message = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = message.unwrap_or("no message"), "a handler panicked");
    ApiError::internal().into_response()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{ApiError, panicked};

    #[test]
    fn the_response_to_a_panic_hides_its_cause() {
        let response = panicked(Box::new("secret message"));
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.extensions().get::<ApiError>().unwrap().body("r1");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["error"]["code"], &body["error"]["request_id"]), (&"internal".into(), &"r1".into()));
        assert!(!body.to_string().contains("secret"));
    }
}
