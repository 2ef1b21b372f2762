//! `GET /api/admin/status`: what this server is and how much it has to do, for `werkruf status`.

use std::sync::Arc;

use axum::Json;
use jiff::SignedDuration;
use serde::Serialize;
use werkruf_store::RowCounts;

use super::ApiState;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use crate::routing::{self, ApiRouter, ToSchema, routes};
use crate::{provider, version};

/// Calls of this span are recent.
const RECENT: SignedDuration = SignedDuration::from_hours(24);

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(status)))
}

#[derive(Serialize, ToSchema)]
struct Status {
    version: &'static str,
    commit: &'static str,
    #[schema(value_type = String, format = DateTime)]
    started_at: Iso,
    /// Without credentials.
    database: String,
    model: String,
    /// The modules that are on.
    modules: Vec<&'static str>,
    /// Rows of all tenants: `tenants`, `users`, `api_keys`, `conversations`, `open_turns`, `pending_approvals`, and of the last 24 hours
    /// `recent_calls` and `recent_failed_calls`.
    #[schema(value_type = Object)]
    counts: RowCounts,
}

/// What this server is, and how much it has and has to do.
#[routing::path(get, path = "/api/admin/status", operation_id = "status", tag = "admin",
    responses((status = 200, body = Status), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn status(ApiCaller { api, .. }: ApiCaller) -> Result<Json<Status>, ApiError> {
    let app = &api.app;
    let since = app.clock.now().checked_sub(RECENT).unwrap_or(app.started_at);
    // Ids begin with their time in milliseconds.
    let millis = u64::try_from(since.as_millisecond()).unwrap_or(0);
    let first = uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid();
    Ok(Json(Status {
        version: version::VERSION,
        commit: version::commit(),
        started_at: Iso(app.started_at),
        database: app.config.database.to_string(),
        model: provider::describe(&app.config.model),
        modules: app.modules.on.names(),
        counts: app.monitoring_store.row_counts(first).await?,
    }))
}
