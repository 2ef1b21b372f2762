//! `POST /api/admin/retention`: lets go now of what was kept long enough, or counts it.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::ApiError;
use super::policy::{Policy, Who};
use super::view::Iso;
use super::{Door, body};
use crate::retention;

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Admin.on(routes!(run_retention)))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
struct RetentionRequest {
    /// Count what would go, and delete nothing.
    #[serde(default)]
    dry_run: bool,
}

/// What went. Each kind was older than the time beside it, which is null where that kind is kept for good.
#[derive(Serialize, ToSchema)]
struct Retained {
    /// Nothing went; these are the numbers that would have.
    dry_run: bool,
    messages: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    messages_before: Option<Iso>,
    events: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    events_before: Option<Iso>,
    calls: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    calls_before: Option<Iso>,
    usage: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    usage_before: Option<Iso>,
    /// Conversations that were left with nothing and went too; null in a dry run.
    conversations: Option<u64>,
}

/// Deletes what is older than `[retention]` wants. It is about every tenant, so only the operator may ask for it.
#[utoipa::path(post, path = "/api/admin/retention", tag = "admin", request_body = RetentionRequest,
    responses((status = 200, body = Retained), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn run_retention(State(door): State<Arc<Door>>, Who(who): Who, body: Body) -> Result<Json<Retained>, ApiError> {
    if !who.is_operator() {
        return Err(ApiError::forbidden("forbidden", "Retention is about every tenant; it needs the operator's key."));
    }
    let raw = body::bytes(body).await?;
    let RetentionRequest { dry_run } = if raw.is_empty() { RetentionRequest::default() } else { body::json(&raw)? };
    let app = Arc::clone(&door.app);
    let run = door.owned(async move { retention::run(&app, dry_run).await }).await??;
    Ok(Json(Retained {
        dry_run,
        messages: run.messages.rows,
        messages_before: run.messages.before.map(Iso),
        events: run.events.rows,
        events_before: run.events.before.map(Iso),
        calls: run.calls.rows,
        calls_before: run.calls.before.map(Iso),
        usage: run.usage.rows,
        usage_before: run.usage.before.map(Iso),
        conversations: (!dry_run).then_some(run.conversations),
    }))
}
