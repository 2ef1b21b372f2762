//! `POST /api/admin/backup`: a verified copy of the database on the server's own disk.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_store::MaintenanceError;

use super::error::ApiError;
use super::policy::{Policy, Who};
use super::{Door, body};

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Admin.on(routes!(back_up)))
}

#[derive(Deserialize, ToSchema)]
struct BackupRequest {
    /// An absolute path on the server.
    path: String,
    /// Replaces an older backup.
    #[serde(default)]
    force: bool,
}

/// What was written and read back.
#[derive(Serialize, ToSchema)]
#[schema(as = Backup)]
struct BackupView {
    path: String,
    bytes: u64,
    /// Number of the last migration in it.
    schema: i64,
    /// Rows by table.
    rows: std::collections::BTreeMap<String, u64>,
}

/// Writes a backup while turns go on. It holds every tenant, so only the operator may ask for it.
#[utoipa::path(post, path = "/api/admin/backup", tag = "admin", request_body = BackupRequest,
    responses((status = 200, body = BackupView), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn back_up(State(door): State<Arc<Door>>, Who(who): Who, body: Body) -> Result<Json<BackupView>, ApiError> {
    if !who.is_operator() {
        return Err(ApiError::forbidden("forbidden", "A backup holds every tenant; it needs the operator's key."));
    }
    let request: BackupRequest = body::json(&body::bytes(body).await?)?;
    let app = Arc::clone(&door.app);
    let copying = async move { app.store.back_up(PathBuf::from(request.path), request.force).await };
    let made = door.owned(copying).await?.map_err(refused)?;
    tracing::info!(path = %made.path.display(), bytes = made.bytes, "a backup was written");
    Ok(Json(BackupView { path: made.path.display().to_string(), bytes: made.bytes, schema: made.schema, rows: made.rows }))
}

/// How keeping refuses, over HTTP.
pub(crate) fn refused(error: MaintenanceError) -> ApiError {
    let (code, message) = (error.code(), format!("{error}."));
    match error {
        MaintenanceError::Store(error) => error.into(),
        MaintenanceError::Exists(_) | MaintenanceError::NotEmpty(_) => ApiError::conflict(code, message),
        MaintenanceError::Unfit { .. } | MaintenanceError::File { .. } => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message),
    }
}
