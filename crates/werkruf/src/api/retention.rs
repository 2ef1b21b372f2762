//! `POST /api/admin/retention`: lets go now of what was kept long enough.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Door;
use super::error::ApiError;
use super::policy::{Policy, Who};
use super::view::Iso;
use crate::retention;

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Admin.on(routes!(run_retention)))
}

/// What went.
#[derive(Serialize, ToSchema)]
struct Retained {
    /// Events deleted.
    events: u64,
    /// They were older than this; null where events are kept for good.
    #[schema(value_type = Option<String>, format = DateTime)]
    events_before: Option<Iso>,
}

/// Deletes what is older than `[retention]` wants. It is about every tenant, so only the operator may ask for it.
#[utoipa::path(post, path = "/api/admin/retention", tag = "admin",
    responses((status = 200, body = Retained), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn run_retention(State(door): State<Arc<Door>>, Who(who): Who) -> Result<Json<Retained>, ApiError> {
    if !who.is_operator() {
        return Err(ApiError::forbidden("forbidden", "Retention is about every tenant; it needs the operator's key."));
    }
    let app = Arc::clone(&door.app);
    let run = door.owned(async move { retention::run(&app).await }).await??;
    Ok(Json(Retained { events: run.events, events_before: run.events_before.map(Iso) }))
}
