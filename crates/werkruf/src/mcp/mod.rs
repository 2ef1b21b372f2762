//! `/mcp`: the tools for every client that speaks the Model Context Protocol, by the official SDK.
//!
//! The SDK knows the protocol: both eras, their headers, sessions and streams. What this server promises on every other route is kept here: a request
//! is authenticated and counted before it comes here, its body is read within the byte budget, a session belongs to the credential that opened
//! it, and a call passes the one call pipeline (`call`).
//!
//! Two eras: up to 2025-11-25 a client opens a session with `initialize`; since 2026-07-28 each request stands for itself.

mod call;
mod call_result;
mod exchange;
mod origin;
mod request;
mod resources;
mod service;
mod sessions;
mod tasks;
mod tool_list;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::api::policy::Policy;
use crate::api::{ApiError, ApiState};
use crate::routing::{self, ApiRouter, routes};
use service::Service;
use sessions::OwnedSessions;

/// How often an open stream without events gets a comment, so that no proxy closes it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Mcp.on(routes!(post, get, delete)))
}

/// What the requests of all clients share.
pub(crate) struct McpServer {
    sessions: Arc<OwnedSessions>,
    service: StreamableHttpService<Service, OwnedSessions>,
}

impl McpServer {
    /// `drained` ends all streams.
    pub(crate) fn new(drained: CancellationToken) -> Self {
        let sessions = Arc::new(OwnedSessions::default());
        let config = StreamableHttpServerConfig::default()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_json_response(true)
            // `origin` checks both: the SDK's list cannot say "any address without a name".
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(crate::api::body::BODY_LIMIT)
            .with_cancellation_token(drained);
        let service = StreamableHttpService::new(|| Ok(Service::default()), Arc::clone(&sessions), config);
        Self { sessions, service }
    }
}

/// A message of the Model Context Protocol: a request, a notification or a response. Answers with JSON or with an event stream.
#[routing::path(post, path = "/mcp", operation_id = "mcp_post", tag = "mcp", request_body = serde_json::Value,
    params(("Mcp-Session-Id" = Option<String>, Header), ("MCP-Protocol-Version" = Option<String>, Header)),
    responses((status = 200, body = serde_json::Value, description = "The response, as JSON or as an event stream."), (status = 202, description = "A notification was taken."),
        (status = 400, body = Object, description = "An error of the protocol, or one of the server."), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn post(State(api): State<Arc<ApiState>>, request: Request) -> Result<Response, ApiError> {
    exchange::exchange(api, request).await
}

/// The messages of a session that answer no request, or the rest of a stream that was cut (`Last-Event-ID`). Up to protocol version 2025-11-25.
#[routing::path(get, path = "/mcp", operation_id = "mcp_get", tag = "mcp", params(("Mcp-Session-Id" = Option<String>, Header)),
    responses((status = 200, body = String, content_type = "text/event-stream", description = "An event stream."), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn get(State(api): State<Arc<ApiState>>, request: Request) -> Result<Response, ApiError> {
    exchange::exchange(api, request).await
}

/// Ends a session. Up to protocol version 2025-11-25.
#[routing::path(delete, path = "/mcp", operation_id = "mcp_delete", tag = "mcp", params(("Mcp-Session-Id" = Option<String>, Header)),
    responses((status = 204), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn delete(State(api): State<Arc<ApiState>>, request: Request) -> Result<Response, ApiError> {
    exchange::exchange(api, request).await
}
