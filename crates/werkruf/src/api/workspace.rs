//! Imports workspace data of a customer. One file is one transaction.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use werkruf_contract::Uuid;
use werkruf_store::import::{ImportBatch, ImportFault, ImportRefusal, add_lines, parse_batch};

use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::{ApiState, body};
use crate::identity::Identity;
use crate::modules::MODULES;
use crate::routing::{self, ApiRouter, ToSchema, routes};

/// Large enough for a company of a few thousand people with the rows of several years.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Admin.on(routes!(import)))
}

/// The result of an import.
#[derive(Serialize, ToSchema)]
struct Imported {
    tenant_id: Uuid,
    /// Number of rows by table.
    written: std::collections::BTreeMap<String, u64>,
}

/// An import file. Every list is optional, and a missing list changes nothing.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only for the OpenAPI schema; the store parses the file itself, to report the line of each error")]
struct WorkspaceImport {
    /// Slug or id. A slug that does not exist creates the tenant.
    tenant: String,
    /// `{id, name, time_zone}`
    branches: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// `{id, name, permissions: [{entity, entity_type, access: read|write|both, scope: own|branch|all}]}`
    roles: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// `{id, first_name, last_name, email?, phone?, whatsapp_user_id?, external_id?, locale, time_zone?, branch_id?, role_ids}`
    users: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// `{id, title, description?, status: open|in_progress|done|cancelled, due_date?, requester_id, responsible_id?, branch_id, created_at?}`
    requests: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// `{id, title, description?, status: open|in_progress|improval|quality_control|done, due_date?, user_id, branch_id, created_at?}`
    tasks: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// `{id, user_id, branch_id, started_at, ended_at?}`
    worktimes: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// `{id, title, content, tags, branch_id?}`
    cerebro_articles: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
}

/// Imports workspace data. A row with an existing id replaces the old one; a file with errors changes nothing.
#[routing::path(post, path = "/api/workspace/import", tag = "workspace", request_body = WorkspaceImport,
    responses((status = 200, body = Imported), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn import(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<Response, ApiError> {
    let raw = body::bytes_up_to(body, MAX_BODY_BYTES).await?;
    raw.reserve_all_values()?;
    let app = Arc::clone(&api.app);
    let (text, mut batch) = body::run_blocking(move || read(&raw, |module| app.has_module(module))).await??;
    check_tenant(&api, &identity, &batch).await?;
    batch.by = identity.author();
    let (id, now) = (api.app.clock.new_id(), api.app.clock.now());
    match api.app.administration_store.import(batch, id, now).await? {
        Ok(report) => Ok(Json(Imported { tenant_id: report.tenant_id, written: report.written }).into_response()),
        Err(mut errors) => Err(body::run_blocking(move || {
            add_lines(&text, &mut errors);
            import_error(&errors)
        })
        .await?),
    }
}

pub(super) fn read(raw: &[u8], is_on: impl Fn(&str) -> bool) -> Result<(String, ImportBatch), ApiError> {
    let text = std::str::from_utf8(raw).map_err(|_| ApiError::invalid("The body is not UTF-8; encode it again."))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let batch = parse_batch(text, MODULES, is_on).map_err(|refusal| match refusal {
        ImportRefusal::Faults(errors) => import_error(&errors),
        ImportRefusal::ModuleOff { module, list } => ApiError::module_off(StatusCode::UNPROCESSABLE_ENTITY, module)
            .details(json!([{"path": format!("/{list}"), "message": "belongs to a module that is off"}])),
    })?;
    Ok((text.to_owned(), batch))
}

/// Checks the tenant of an import. The operator may import into any tenant and create new ones, a key with scope admin only into
/// its own.
async fn check_tenant(api: &ApiState, identity: &Identity, batch: &ImportBatch) -> Result<(), ApiError> {
    if identity.is_operator() {
        return Ok(());
    }
    match api.app.people().tenant(batch.tenant.clone()).await? {
        Some(tenant) if tenant.id == identity.tenant_id => Ok(()),
        Some(_) | None => {
            Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_tenant", "There is no such tenant; this key may import only into its own."))
        }
    }
}

fn import_error(errors: &[ImportFault]) -> ApiError {
    let message = format!("The file has {} error(s), so nothing was written; details say where.", errors.len());
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "import_invalid", message).details(json!(errors))
}
