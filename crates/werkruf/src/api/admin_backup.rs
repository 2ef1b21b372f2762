//! `POST /api/admin/backup`: a verified copy of the database on the server's own disk.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use werkruf_store::{Act, MaintenanceError, SERVER_CHAIN};

use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::{ApiState, body};
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(back_up)))
}

#[derive(Deserialize, ToSchema)]
struct BackupRequest {
    /// An absolute path on the server.
    path: String,
    /// Whether an existing backup at this path is replaced.
    #[serde(default)]
    force: bool,
}

/// The backup that was written and verified.
#[derive(Serialize, ToSchema)]
#[schema(as = Backup)]
struct BackupView {
    path: String,
    bytes: u64,
    /// The schema number: how many migrations the backup has.
    schema: i64,
    /// Number of rows by table.
    rows: std::collections::BTreeMap<String, u64>,
}

/// Writes a backup while turns run. A backup contains every tenant, so only the operator may request it.
#[routing::path(post, path = "/api/admin/backup", tag = "admin", request_body = BackupRequest,
    responses((status = 200, body = BackupView), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn back_up(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<Json<BackupView>, ApiError> {
    let request: BackupRequest = body::json(&body::bytes(body).await?)?;
    let app = Arc::clone(&api.app);
    let copying = async move { app.store.back_up(PathBuf::from(request.path), request.force).await };
    let backup = api.run_detached(copying).await?.map_err(maintenance_error)?;
    let act = Act::new("database.backup", backup.path.display().to_string()).after(json!({"bytes": backup.bytes, "schema": backup.schema}));
    api.app.record(SERVER_CHAIN, identity.author(), act).await;
    tracing::info!(path = %backup.path.display(), bytes = backup.bytes, "a backup was written");
    Ok(Json(BackupView { path: backup.path.display().to_string(), bytes: backup.bytes, schema: backup.schema, rows: backup.rows }))
}

/// The HTTP error for a maintenance error.
pub(crate) fn maintenance_error(error: MaintenanceError) -> ApiError {
    let (code, message) = (error.code(), format!("{error}."));
    match error {
        MaintenanceError::Store(error) => error.into(),
        MaintenanceError::Exists(_) | MaintenanceError::NotEmpty(_) => ApiError::conflict(code, message),
        MaintenanceError::Unfit { .. } | MaintenanceError::File { .. } => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message),
    }
}
