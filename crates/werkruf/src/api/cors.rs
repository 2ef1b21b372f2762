//! CORS: web pages may call the API only from origins in `WERKRUF_CORS_ORIGINS`.

use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

const ALLOWED: [&str; 36] = [
    "authorization",
    "api-key",
    "apikey",
    "x-api-key",
    "accept",
    "user-agent",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "x-client-request-id",
    "x-client-info",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "accept-language",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "x-budget-tokens",
    "x-case-id",
    "x-collection-id",
    "x-conversation-id",
    "x-document-id",
    "x-document-version-id",
    "x-ingestion-run-id",
    "x-request-id",
    "x-run-id",
    "x-safety-mode",
    "x-tenant-id",
    "x-timeout-ms",
    "x-trace-id",
    "x-user-id",
    "x-werkruf-tools",
    "x-workflow-id",
];

/// Headers with which OpenAI's own library describes itself. New versions of it send new ones.
const SDK_PREFIX: &str = "x-stainless-";
/// The most such headers that one preflight request is answered for.
const MAX_SDK_HEADERS: usize = 32;

const EXPOSED: [&str; 14] = [
    "mcp-session-id",
    "x-conversation-id",
    "x-tool-call-id",
    "x-approval-id",
    "x-request-id",
    "x-werkruf-model",
    "idempotent-replayed",
    "location",
    "retry-after",
    "x-should-retry",
    "openai-processing-ms",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

/// The layer that answers preflight requests and sets the CORS headers.
pub(crate) fn layer(origins: &[String]) -> CorsLayer {
    let origin = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin.trim_end_matches('/')).ok()))
    };
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(ALLOWED.map(HeaderName::from_static))
        .expose_headers(EXPOSED.map(HeaderName::from_static))
        .max_age(Duration::from_secs(600))
}

/// The layer that adds the headers of OpenAI's library to the answer to a preflight request that names them.
pub(crate) async fn allow_sdk_headers(request: Request, next: Next) -> Response {
    let named = if request.method() == Method::OPTIONS { sdk_headers(request.headers()) } else { None };
    let mut response = next.run(request).await;
    if let Some(named) = named.filter(|_| response.headers().contains_key(ACCESS_CONTROL_ALLOW_HEADERS)) {
        response.headers_mut().append(ACCESS_CONTROL_ALLOW_HEADERS, named);
    }
    response
}

/// The headers of OpenAI's library that a preflight request names.
fn sdk_headers(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS)?.to_str().ok()?;
    let named = asked.split(',').filter_map(|name| HeaderName::try_from(name.trim()).ok());
    let named: Vec<HeaderName> = named.filter(|name| name.as_str().starts_with(SDK_PREFIX)).take(MAX_SDK_HEADERS).collect();
    let joined = named.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(",");
    HeaderValue::try_from(joined).ok().filter(|value| !value.is_empty())
}
