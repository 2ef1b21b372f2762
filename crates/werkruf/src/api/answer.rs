//! A turn as one JSON answer: what `final` says, or the error it ended with.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use werkruf_contract::{Deadline, EventType, TurnStatus, Uuid};
use werkruf_runtime::AcceptedTurn;

use super::chat::RunningTurn;
use super::error::ApiError;

#[derive(Deserialize)]
struct Approval {
    approval_id: Uuid,
}

/// Longer than any turn lasts: its own time, and the grace for its last word.
const GRACE: Duration = Duration::from_secs(60);

/// Listens until the turn has ended, or should have.
pub(crate) async fn collect(mut accepted: AcceptedTurn, turn: Duration) -> Result<Response, ApiError> {
    let mut approval_id = None;
    let end = Deadline::after(turn.saturating_add(GRACE)).instant();
    while let Ok(Some(event)) = tokio::time::timeout_at(end.into(), accepted.events.recv()).await {
        if event.kind.ends_turn() {
            return ended(Some(accepted.conversation_id), event.kind, event.data.as_bytes().to_vec());
        }
        if event.kind == EventType::ApprovalRequired {
            approval_id = approval_id.or_else(|| serde_json::from_str(&event.data).ok().map(|Approval { approval_id }| approval_id));
        }
    }
    // The turn goes on without us: a person must decide, it waits behind others, or the server is being drained.
    let status = if approval_id.is_some() { TurnStatus::AwaitingApproval } else { TurnStatus::Accepted };
    let (conversation_id, turn_id) = (Some(accepted.conversation_id), accepted.turn_id);
    Ok(RunningTurn { conversation_id, turn_id, status, approval_id }.respond())
}

/// The answer made of the event that ended a turn.
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
