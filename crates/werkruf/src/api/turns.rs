//! Turns: show and cancel.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use werkruf_contract::{TurnStatus, Uuid};
use werkruf_store::TurnRow;

use super::body::PathParam;
use super::chat::RunningTurn;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::{Iso, error_detail};
use super::{ApiState, lookup};
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Read.on(routes!(show))).routes(Policy::Change.on(routes!(cancel)))
}

#[derive(Serialize, ToSchema)]
pub(crate) struct TurnMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Turn)]
pub(crate) struct TurnView<'a> {
    id: Uuid,
    conversation_id: Option<Uuid>,
    #[schema(value_type = String)]
    status: TurnStatus,
    step: u32,
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Iso>,
    /// The final answer, if there is one.
    message: Option<TurnMessage<'a>>,
}

impl<'a> TurnView<'a> {
    /// Builds the view. Only an admin sees the cause of an error.
    pub(crate) fn new(row: &'a TurnRow, admin: bool) -> Self {
        Self {
            id: row.id,
            conversation_id: row.conversation_id,
            status: row.status,
            step: row.step,
            error: error_detail(row.error.as_deref(), admin),
            created_at: Iso(row.created_at),
            finished_at: row.finished_at.map(Iso),
            message: row.message.as_deref().map(|content| TurnMessage { role: "assistant", content }),
        }
    }
}

/// One turn.
#[routing::path(get, path = "/api/turns/{id}", operation_id = "get_turn", tag = "turns", params(("id" = String, Path)),
    responses((status = 200, body = TurnView), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let row = lookup::turn(&api, &identity, &id).await?;
    Ok(Json(TurnView::new(&row, identity.scopes.admin)).into_response())
}

/// Requests the cancellation of a turn. The turn ends with `canceled`.
#[routing::path(post, path = "/api/turns/{id}/cancel", operation_id = "cancel_turn", tag = "turns", params(("id" = String, Path)),
    responses((status = 202, body = RunningTurn), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`already_finished`")))]
async fn cancel(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let row = lookup::turn(&api, &identity, &id).await?;
    if row.status.is_terminal() || !api.app.runtime.cancel_turn(identity.tenant_id, row.id).await? {
        return Err(ApiError::conflict("already_finished", "The turn has ended already."));
    }
    let answer = RunningTurn { conversation_id: row.conversation_id, turn_id: row.id, status: row.status, approval_id: None };
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}
