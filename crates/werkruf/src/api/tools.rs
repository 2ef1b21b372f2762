//! The registered tools.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use serde::Serialize;
use serde_json::Value;
use werkruf_contract::{Tenant, Trust};
use werkruf_runtime::{Entry, Registry};

use super::ApiState;
use super::body::PathParam;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use crate::identity::Identity;
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::ReadTools.on(routes!(list))).routes(Policy::ReadTools.on(routes!(show)))
}

/// A tool.
#[derive(Serialize, ToSchema)]
#[schema(as = Tool)]
struct ToolView {
    name: String,
    description: String,
    /// `read`, `idempotent` or `once`.
    effect: &'static str,
    /// The permission it needs, as `entity:entity_type:access`; null: none.
    permission: Option<String>,
    /// JSON Schema of the arguments.
    #[schema(value_type = Object)]
    parameters: Value,
    /// JSON Schema of the data; null if it is not known.
    #[schema(value_type = Option<Object>)]
    output: Option<Value>,
    /// Whether the model server enforces the schema.
    strict: bool,
    /// The limit in force for one attempt.
    timeout_ms: u64,
    /// The most attempts of a call, the first one included.
    attempts: u32,
    /// For how many seconds a result may be reused; null: inside the turn only; 0: never.
    reuse_s: Option<u64>,
    /// How often one turn may make the very same call.
    repeat_limit: u32,
    /// One of these roles must approve each call. Empty if no approval is needed.
    approval: Vec<String>,
    answers_directly: bool,
    /// `untrusted` if strangers may write what the tool returns, else `trusted`.
    #[schema(value_type = String)]
    trust: Trust,
    /// Whether the arguments leave the company.
    external: bool,
    version: String,
}

impl ToolView {
    /// `tool_ms` is the limit of the tools that have none of their own.
    fn new(entry: &Entry, tool_ms: u64) -> Self {
        let spec = entry.spec();
        Self {
            name: spec.name.to_string(),
            description: spec.description.to_string(),
            effect: spec.effect.as_str(),
            permission: spec.permission.as_ref().map(ToString::to_string),
            parameters: entry.parameters().clone(),
            output: entry.output_schema().cloned(),
            strict: entry.definition().strict,
            timeout_ms: u64::try_from(spec.limit(Duration::from_millis(tool_ms)).as_millis()).unwrap_or(u64::MAX),
            attempts: spec.allowed_attempts(),
            reuse_s: spec.reuse.map(|window| window.as_secs()),
            repeat_limit: spec.repeat_limit,
            approval: spec.approval.iter().map(ToString::to_string).collect(),
            answers_directly: spec.answers_directly,
            trust: spec.trust,
            external: spec.external,
            version: spec.version.to_string(),
        }
    }
}

/// All tools on one page.
#[derive(Serialize, ToSchema)]
struct ToolList {
    tools: Vec<ToolView>,
    #[schema(value_type = Option<String>)]
    next_after: Option<String>,
}

/// All tools, in the order of their registration.
#[routing::path(get, path = "/api/tools", operation_id = "list_tools", tag = "tools", responses((status = 200, body = ToolList)))]
async fn list(ApiCaller { api, identity }: ApiCaller) -> Result<Json<ToolList>, ApiError> {
    let setup = api.app.runtime.setup();
    let slug = tenant_slug(&api, &identity, &setup.registry).await?;
    let tools = setup
        .registry
        .all_for(Tenant { id: identity.tenant_id, slug: &slug })
        .map(|entry| ToolView::new(entry, api.app.config.limits.tool_ms))
        .collect();
    Ok(Json(ToolList { tools, next_after: None }))
}

/// The slug of the caller's tenant; empty where no tool depends on it.
pub(crate) async fn tenant_slug(api: &ApiState, identity: &Identity, registry: &Registry) -> Result<String, ApiError> {
    if !registry.depends_on_tenant() {
        return Ok(String::new());
    }
    let tenant = api.app.people().tenant(identity.tenant_id.to_string()).await?;
    Ok(tenant.map(|tenant| tenant.slug).unwrap_or_default())
}

/// One tool.
#[routing::path(get, path = "/api/tools/{name}", operation_id = "get_tool", tag = "tools", params(("name" = String, Path, description = "The tool.")),
    responses((status = 200, body = ToolView), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn show(caller: ApiCaller, PathParam(name): PathParam) -> Result<Json<ToolView>, ApiError> {
    let entry = tool_of_tenant(&caller, &name).await?;
    Ok(Json(ToolView::new(&entry, caller.api.app.config.limits.tool_ms)))
}

/// A tool by name; one of other tenants does not exist for this one.
pub(super) async fn tool_of_tenant(ApiCaller { api, identity }: &ApiCaller, name: &str) -> Result<Arc<Entry>, ApiError> {
    find(api, identity, name).await
}

/// A tool by name; one of other tenants does not exist for this one.
pub(crate) async fn find(api: &ApiState, identity: &Identity, name: &str) -> Result<Arc<Entry>, ApiError> {
    let setup = api.app.runtime.setup();
    let slug = tenant_slug(api, identity, &setup.registry).await?;
    let found = setup.registry.find_for(Tenant { id: identity.tenant_id, slug: &slug }, name).cloned();
    found.ok_or_else(|| ApiError::unknown_tool(name))
}
