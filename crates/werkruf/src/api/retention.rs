//! `POST /api/admin/retention`: deletes rows that are older than the configured retention, or counts them.

use std::sync::Arc;

use axum::Json;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body};
use crate::retention;
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(run_retention)))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
struct RetentionRequest {
    /// Whether rows are only counted and not deleted.
    #[serde(default)]
    dry_run: bool,
}

/// The number of deleted rows. Each kind has the time before which rows were deleted; null if that kind is kept forever.
#[derive(Serialize, ToSchema)]
struct RetentionReport {
    /// If true, nothing was deleted; the numbers are those that would have been.
    dry_run: bool,
    messages: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    messages_before: Option<Iso>,
    outbox: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    outbox_before: Option<Iso>,
    events: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    events_before: Option<Iso>,
    calls: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    calls_before: Option<Iso>,
    usage: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    usage_before: Option<Iso>,
    /// Conversations that became empty and were deleted; null in a dry run.
    conversations: Option<u64>,
}

/// Deletes rows that are older than `[retention]` allows. It affects every tenant, so only the operator may request it.
#[routing::path(post, path = "/api/admin/retention", tag = "admin", request_body = RetentionRequest,
    responses((status = 200, body = RetentionReport), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn run_retention(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<Json<RetentionReport>, ApiError> {
    let raw = body::bytes(body).await?;
    let RetentionRequest { dry_run } = if raw.is_empty() { RetentionRequest::default() } else { body::json(&raw)? };
    let (app, author) = (Arc::clone(&api.app), identity.author());
    let run = api.run_detached(async move { retention::run(&app, dry_run, author).await }).await??;
    Ok(Json(RetentionReport {
        dry_run,
        messages: run.messages.rows,
        messages_before: run.messages.before.map(Iso),
        outbox: run.outbox.rows,
        outbox_before: run.outbox.before.map(Iso),
        events: run.events.rows,
        events_before: run.events.before.map(Iso),
        calls: run.calls.rows,
        calls_before: run.calls.before.map(Iso),
        usage: run.usage.rows,
        usage_before: run.usage.before.map(Iso),
        conversations: (!dry_run).then_some(run.conversations),
    }))
}
