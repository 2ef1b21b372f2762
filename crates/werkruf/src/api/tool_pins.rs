//! `GET /api/admin/tools` and `POST /api/admin/tools/{name}/accept`: the MCP servers, and the pinned definitions of their tools.

use std::sync::Arc;

use axum::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_runtime::LeftOutTool;
use werkruf_store::ToolPin;
use werkruf_tools::McpServerState;

use super::body::PathParam;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body};
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(list))).routes(Policy::Operator.on(routes!(accept)))
}

/// A tool that an MCP server could not bring in.
#[derive(Serialize, ToSchema)]
struct RefusedTool {
    /// The server's own name of the tool.
    tool: String,
    reason: String,
}

/// An MCP server, as this process sees it.
#[derive(Serialize, ToSchema)]
#[schema(as = McpServer)]
struct ServerView {
    name: String,
    /// `connecting`, `connected`, `failed`, or `needs_connection` while nobody has an account connected at a server that wants one.
    #[schema(value_type = String)]
    state: &'static str,
    /// The version of the protocol that was agreed on.
    protocol: Option<String>,
    /// Why there is no connection, and what to do.
    error: Option<String>,
    /// The tools that can be called.
    tools: Vec<String>,
    /// The tools that are disabled because their definition has changed.
    changed: Vec<String>,
    refused: Vec<RefusedTool>,
}

impl ServerView {
    /// `left_out` are the tools that could not be added beside those of the configuration and of the other servers.
    fn new(state: McpServerState, left_out: &[LeftOutTool]) -> Self {
        let McpServerState { name, state, protocol, error, mut tools, changed, refused } = state;
        let mut refused: Vec<RefusedTool> = refused.into_iter().map(|(tool, reason)| RefusedTool { tool, reason }).collect();
        for LeftOutTool { own_name, fault, .. } in left_out.iter().filter(|left_out| left_out.server == name) {
            tools.retain(|tool| *tool != fault.name);
            refused.push(RefusedTool { tool: own_name.clone(), reason: fault.to_string() });
        }
        Self { name, state, protocol, error, tools, changed, refused }
    }
}

/// The definition of a tool that the operator knows, and the one that its server offers instead.
#[derive(Serialize, ToSchema)]
#[schema(as = ToolPin)]
struct PinView {
    name: String,
    server: String,
    /// `accepted`, or `changed` while the tool is disabled.
    #[schema(value_type = String)]
    status: &'static str,
    /// SHA-256 of the definition.
    digest: String,
    #[schema(value_type = Object)]
    definition: Value,
    #[schema(value_type = String, format = DateTime)]
    accepted_at: Iso,
    changed_digest: Option<String>,
    #[schema(value_type = Option<Object>)]
    changed_definition: Option<Value>,
    #[schema(value_type = Option<String>, format = DateTime)]
    changed_at: Option<Iso>,
}

impl PinView {
    fn new(pin: ToolPin) -> Self {
        // The store got them as JSON.
        let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
        Self {
            name: pin.name,
            server: pin.server,
            status: if pin.change.is_some() { "changed" } else { "accepted" },
            digest: pin.digest,
            definition: read(&pin.definition),
            accepted_at: Iso(pin.accepted_at),
            changed_digest: pin.change.as_ref().map(|change| change.digest.clone()),
            changed_definition: pin.change.as_ref().map(|change| read(&change.definition)),
            changed_at: pin.change.map(|change| Iso(change.seen_at)),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct ForeignTools {
    servers: Vec<ServerView>,
    pins: Vec<PinView>,
}

/// Which definition is accepted.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
struct Acceptance {
    /// The digest that was looked at; without it, the one that the server offers now.
    digest: Option<String>,
}

/// The MCP servers of the configuration, and the definitions of all tools that they ever offered.
#[routing::path(get, path = "/api/admin/tools", operation_id = "list_foreign_tools", tag = "admin", responses((status = 200, body = ForeignTools),
    (status = 403, body = ref("#/components/schemas/Error"), description = "Only the operator may see them.")))]
async fn list(ApiCaller { api, .. }: ApiCaller) -> Result<Json<ForeignTools>, ApiError> {
    let pins = api.app.database.tool_pins().tool_pins().await?;
    let setup = api.app.runtime.setup();
    let servers = api.app.modules.mcp.states().into_iter().map(|state| ServerView::new(state, setup.registry.left_out())).collect();
    Ok(Json(ForeignTools { servers, pins: pins.into_iter().map(PinView::new).collect() }))
}

/// Accepts the changed definition of a tool, which is then offered again.
#[routing::path(post, path = "/api/admin/tools/{name}/accept", operation_id = "accept_tool", tag = "admin",
    params(("name" = String, Path, description = "The tool, with the prefix of its server.")), request_body = Acceptance,
    responses((status = 200, body = PinView), (status = 404, body = ref("#/components/schemas/Error"), description = "No such tool has changed."),
        (status = 403, body = ref("#/components/schemas/Error"), description = "Only the operator may accept a tool.")))]
async fn accept(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(name): PathParam,
    body: body::RequestBody,
) -> Result<Json<PinView>, ApiError> {
    let raw = body::bytes(body).await?;
    let acceptance: Acceptance = if raw.is_empty() { Acceptance::default() } else { body::json(&raw)? };
    let pins = api.app.database.tool_pins();
    let offered = pins.tool_pins().await?.into_iter().find(|pin| pin.name == name).and_then(|pin| pin.change);
    let digest = acceptance.digest.or(offered.map(|change| change.digest));
    let accepted = match digest {
        Some(digest) => pins.accept_tool(name.clone(), digest, identity.author(), api.app.clock.now()).await?,
        None => None,
    };
    let pin = accepted.ok_or_else(|| ApiError::not_found("changed tool"))?;
    api.app.modules.mcp.compare();
    Ok(Json(PinView::new(pin)))
}
