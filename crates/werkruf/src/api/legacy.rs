//! `POST /api/admin/import`: imports the database of an older program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use werkruf_store::{Act, LegacyError, LegacyImport, LegacySource};

use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::{ApiState, body};
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(import)))
}

#[derive(Deserialize, ToSchema)]
struct ImportRequest {
    /// `sqlite:` and an absolute path on the server, or `postgres://…` as the server reaches it.
    from: String,
    /// Only reports what would be written.
    #[serde(default)]
    dry_run: bool,
}

/// The result of an import. Every row that was read is either written or skipped.
#[derive(Serialize, ToSchema)]
struct ImportReport {
    /// Number of rows by table of the older program.
    read: BTreeMap<String, u64>,
    /// Number of rows by table of this server.
    written: BTreeMap<String, u64>,
    /// `{table, id, reason}`
    #[schema(value_type = Vec<Object>)]
    skipped: Vec<werkruf_store::Skipped>,
}

/// Imports the conversations, messages and tool calls of an older program. Importing again writes only new rows. Rows of users that
/// do not exist here get the user in `X-User-Id`.
#[routing::path(post, path = "/api/admin/import", operation_id = "import_legacy", tag = "admin", request_body = ImportRequest,
    responses((status = 200, body = ImportReport), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn import(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<Json<ImportReport>, ApiError> {
    let request: ImportRequest = body::json(&body::bytes(body).await?)?;
    let import = LegacyImport {
        source: source(&request.from)?,
        tenant_id: identity.tenant_id,
        user_id: identity.principal.as_ref().map(|person| person.user_id.clone()),
        max_state_bytes: api.app.config.limits.state_bytes,
        dry_run: request.dry_run,
    };
    let app = Arc::clone(&api.app);
    let report = api.run_detached(async move { app.administration_store.import_legacy(import).await }).await?.map_err(import_error)?;
    if !request.dry_run {
        // The address of a PostgreSQL may hold a password.
        let subject = request.from.split_once("://").map_or(request.from.as_str(), |(scheme, _)| scheme);
        api.app.record(identity.tenant_id, identity.author(), Act::new("legacy.import", subject).after(json!(report.written))).await;
    }
    tracing::info!(tenant_id = %identity.tenant_id, dry_run = request.dry_run, written = ?report.written, "the database of an older program was imported");
    Ok(Json(ImportReport { read: report.read, written: report.written, skipped: report.skipped }))
}

fn source(from: &str) -> Result<LegacySource, ApiError> {
    if from.starts_with("postgres://") || from.starts_with("postgresql://") {
        return Ok(LegacySource::Postgres(from.to_owned()));
    }
    let file = from.strip_prefix("sqlite://").or_else(|| from.strip_prefix("sqlite:")).map(PathBuf::from);
    let file = file.filter(|file| file.is_absolute());
    file.map(LegacySource::Sqlite)
        .ok_or_else(|| ApiError::invalid("from takes sqlite: and an absolute path on the server, or postgres:// and an address."))
}

fn import_error(error: LegacyError) -> ApiError {
    match error {
        LegacyError::Store(error) => error.into(),
        LegacyError::Source { .. } => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "source_unusable", format!("{error}.")),
    }
}
