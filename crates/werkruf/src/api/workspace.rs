//! The customer's own rows, brought in from outside. One file is one transaction: everything or nothing.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::Uuid;
use werkruf_store::{ImportFault, WorkspaceBatch, add_lines, parse_batch};

use super::ApiState;
use super::error::ApiError;
use super::policy::{Authenticated, Policy};
use crate::identity::Identity;

/// Large enough for the office of a few thousand people with years of rows.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

pub(crate) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::default().routes(Policy::Admin.on(routes!(import)))
}

/// What was written.
#[derive(Serialize, ToSchema)]
struct Imported {
    tenant_id: Uuid,
    /// Rows by table.
    written: std::collections::BTreeMap<String, u64>,
}

/// What an import file holds; every list may be missing, and a missing list changes nothing.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the shape for the document; the store reads the file itself, to tell every fault's line")]
struct WorkspaceImport {
    /// Slug or id. A slug nobody has makes the tenant.
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

/// Imports an office: the same id replaces, a file with faults writes nothing.
#[utoipa::path(post, path = "/api/workspace/import", tag = "workspace", request_body = WorkspaceImport,
    responses((status = 200, body = Imported), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn import(State(api): State<Arc<ApiState>>, Authenticated(identity): Authenticated, body: Body) -> Result<Response, ApiError> {
    let raw = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| {
        ApiError::invalid("The body broke off or is larger than 32 MiB; split the file, later parts may name earlier ones.")
    })?;
    let (text, batch) = run_blocking(move || read(&raw)).await??;
    check_tenant(&api, &identity, &batch).await?;
    let (id, now) = (api.app.clock.new_id(), api.app.clock.now());
    match api.app.store.import(batch, id, now).await? {
        Ok(report) => Ok(Json(Imported { tenant_id: report.tenant_id, written: report.written }).into_response()),
        Err(mut faults) => Err(run_blocking(move || {
            add_lines(&text, &mut faults);
            refused(&faults)
        })
        .await?),
    }
}

fn read(raw: &[u8]) -> Result<(String, WorkspaceBatch), ApiError> {
    let text = std::str::from_utf8(raw).map_err(|_| ApiError::invalid("The body is not UTF-8; encode it again."))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let batch = parse_batch(text).map_err(|faults| refused(&faults))?;
    Ok((text.to_owned(), batch))
}

/// A large file takes a while to read: not on a thread that serves requests.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "reading an import did not end");
        ApiError::internal()
    })
}

/// The operator imports into any tenant and makes new ones, a key with scope admin only into its own.
async fn check_tenant(api: &ApiState, identity: &Identity, batch: &WorkspaceBatch) -> Result<(), ApiError> {
    if identity.is_operator() {
        return Ok(());
    }
    match api.app.people().tenant(batch.tenant.clone()).await? {
        Some(tenant) if tenant.id == identity.tenant_id => Ok(()),
        Some(_) | None => {
            Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_tenant", "There is no such tenant; this key imports into its own alone."))
        }
    }
}

fn refused(faults: &[ImportFault]) -> ApiError {
    let message = format!("The file has {} fault(s), so nothing was written; details say where.", faults.len());
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "import_invalid", message).details(json!(faults))
}
