//! The result of a turn as one JSON response: the data of its `final` event, or the error it ended with.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use werkruf_contract::{Deadline, EventType, TurnStatus, Uuid};
use werkruf_runtime::AcceptedTurn;

use super::chat::RunningTurn;
use super::error::ApiError;
use crate::app::App;

#[derive(Deserialize)]
struct Approval {
    approval_id: Uuid,
}

/// Added to the time limit of a turn, for its last event.
const GRACE: Duration = Duration::from_secs(60);

/// When to stop waiting for a turn that should have ended.
pub(crate) fn wait_deadline(app: &App) -> Instant {
    Deadline::after(Duration::from_millis(app.config.limits.turn_ms).saturating_add(GRACE)).instant().into()
}

/// Waits until the turn has ended or should have ended.
pub(crate) async fn collect(app: &App, mut accepted: AcceptedTurn) -> Result<Response, ApiError> {
    let mut approval_id = None;
    let end = wait_deadline(app);
    while let Ok(Some(event)) = timeout_at(end, accepted.events.recv()).await {
        if event.kind.ends_turn() {
            return ended(Some(accepted.conversation_id), event.kind, event.data.as_bytes().to_vec());
        }
        if event.kind == EventType::ApprovalRequired {
            approval_id = approval_id.or_else(|| serde_json::from_str(&event.data).ok().map(|Approval { approval_id }| approval_id));
        }
    }
    // The turn continues in the background: an approval is pending, the turn is queued, or the server drains.
    let status = if approval_id.is_some() { TurnStatus::AwaitingApproval } else { TurnStatus::Accepted };
    let (conversation_id, turn_id) = (Some(accepted.conversation_id), accepted.turn_id);
    Ok(RunningTurn { conversation_id, turn_id, status, approval_id }.respond())
}

/// The response for the event that ended a turn.
pub(crate) fn ended(conversation_id: Option<Uuid>, kind: EventType, data: Vec<u8>) -> Result<Response, ApiError> {
    if kind == EventType::Error {
        let error = serde_json::from_slice(&data).map_err(|error| {
            tracing::error!(%error, "an error event cannot be read");
            ApiError::internal()
        })?;
        return Err(ApiError::failed_turn(conversation_id, &error));
    }
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], Body::from(data)).into_response())
}
