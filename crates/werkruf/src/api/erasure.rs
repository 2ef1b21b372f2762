//! `POST /api/people/users/{id}/erase`: erases the content of a user.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use serde::{Deserialize, Serialize};
use werkruf_contract::Uuid;
use werkruf_runtime::RecoveryCloser;
use werkruf_store::{Author, MaintenanceError, StoreError, TurnCloser};

use super::admin_backup::maintenance_error;
use super::body::PathParam;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body};
use crate::app::App;
use crate::routing::{self, ApiRouter, ToSchema, routes};

/// How long an erasure waits for canceled turns to end.
const CANCEL_WAIT: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Admin.on(routes!(erase)))
}

#[derive(Default, Deserialize, ToSchema)]
struct EraseRequest {
    /// Whether the running turns of the user are canceled first.
    #[serde(default)]
    cancel: bool,
}

/// The erased user, and how many rows were erased.
#[derive(Serialize, ToSchema)]
#[schema(as = Erased)]
struct ErasedView {
    tenant_id: Uuid,
    user_id: String,
    #[schema(value_type = String, format = DateTime)]
    erased_at: Iso,
    conversations: u64,
    messages: u64,
    turns: u64,
    calls: u64,
    keys: u64,
    /// False if a concurrent reader prevented the compaction of the database files; then erase again.
    compacted: bool,
    /// Copies next to the database that may still contain the user's data.
    copies: Vec<String>,
}

/// Erases a user: texts, names and keys are deleted; ids, times and usage rows stay.
#[routing::path(post, path = "/api/people/users/{id}/erase", operation_id = "erase_user", tag = "people",
    params(("id" = String, Path, description = "The user's number, or `ext:` and the external id.")), request_body = Option<EraseRequest>,
    responses((status = 200, body = ErasedView), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`turn_running`")))]
async fn erase(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    body: body::RequestBody,
) -> Result<Json<ErasedView>, ApiError> {
    let raw = body::bytes(body).await?;
    let request: EraseRequest = if raw.is_empty() { EraseRequest::default() } else { body::json(&raw)? };
    let (app, tenant_id, author) = (Arc::clone(&api.app), identity.tenant_id, identity.author());
    let user_id = resolve_user_id(&app, tenant_id, id).await?;
    let erased = api.run_detached(async move { cancel_and_erase(&app, tenant_id, user_id, request.cancel, author).await }).await??;
    tracing::info!(%tenant_id, user_id = erased.user_id, key_id = ?identity.key_id, compacted = erased.compacted, "a user was erased");
    Ok(Json(erased))
}

/// The user id for a number or `ext:<external id>`.
pub(super) async fn resolve_user_id(app: &App, tenant_id: Uuid, id: String) -> Result<String, ApiError> {
    if let Some(external_id) = id.strip_prefix("ext:") {
        let found = app.identity_store.user_by_external_id(tenant_id, external_id.to_owned()).await?;
        return found.map(|user| user.id.to_string()).ok_or_else(|| ApiError::not_found("user"));
    }
    // Only the canonical spelling counts: `07` does not name user 7.
    id.parse::<i64>().ok().filter(|number| number.to_string() == id).map(|_| id).ok_or_else(|| ApiError::not_found("user"))
}

async fn cancel_and_erase(app: &App, tenant_id: Uuid, user_id: String, cancel: bool, by: Author) -> Result<ErasedView, ApiError> {
    if cancel {
        for turn_id in app.store.unfinished_turns_of(tenant_id, user_id.clone()).await.map_err(maintenance_error)? {
            app.runtime.cancel_turn(tenant_id, turn_id).await?;
        }
    }
    let closer: Arc<dyn TurnCloser> = Arc::new(RecoveryCloser::new(app.clock.clone()));
    let attempts = async {
        loop {
            match app.store.erase_person(tenant_id, user_id.clone(), cancel, Arc::clone(&closer), by.clone(), app.clock.now()).await {
                Err(MaintenanceError::Store(StoreError::Busy)) if cancel => tokio::time::sleep(RETRY_INTERVAL).await,
                other => return other,
            }
        }
    };
    let busy = Err(MaintenanceError::Store(StoreError::Busy));
    let erased = match tokio::time::timeout(CANCEL_WAIT, attempts).await.unwrap_or(busy) {
        Err(MaintenanceError::Store(StoreError::Busy)) => {
            return Err(ApiError::conflict(
                "turn_running",
                "A turn of this user has not ended; wait for it, or cancel it with {\"cancel\": true}.",
            ));
        }
        other => other.map_err(maintenance_error)?.ok_or_else(|| ApiError::not_found("user"))?,
    };
    app.end_connections(tenant_id, &erased.user_id, erased.connections).await;
    Ok(ErasedView {
        tenant_id,
        user_id: erased.user_id,
        erased_at: Iso(erased.erased_at),
        conversations: erased.conversations,
        messages: erased.messages,
        turns: erased.turns,
        calls: erased.calls,
        keys: erased.keys,
        compacted: erased.compacted,
        copies: erased.copies.iter().map(|path| path.display().to_string()).collect(),
    })
}
