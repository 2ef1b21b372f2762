//! CORS: web pages may call the API only from origins in `WERKRUF_CORS_ORIGINS`.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

const ALLOWED: [&str; 24] = [
    "authorization",
    "apikey",
    "x-client-info",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "accept-language",
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

const EXPOSED: [&str; 12] = [
    "x-conversation-id",
    "x-tool-call-id",
    "x-approval-id",
    "x-request-id",
    "x-werkruf-model",
    "idempotent-replayed",
    "location",
    "retry-after",
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
