//! Repeated requests with the same idempotency key: the answer to the first request, or why there is none.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::{HeaderName, HeaderValue, StatusCode};
use werkruf_contract::{TurnStatus, Uuid};
use werkruf_runtime::{InvokeOutcome, complete_event, output_of};
use werkruf_store::{CallFilter, CallRow, Page, TurnRow};

use super::chat::{ResponseMode, RunningTurn, set_conversation_header};
use super::error::ApiError;
use super::{ApiState, answer, approvals, lookup, sse};

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The turn of the first request with this key, if it has ended or waits for an approval.
pub(crate) async fn first_turn(api: &ApiState, tenant_id: Uuid, turn_id: Uuid, same_body: bool) -> Result<TurnRow, ApiError> {
    if !same_body {
        return Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "This Idempotency-Key was used with another body; use a new key for a new request.",
        ));
    }
    let turn = api.app.records().turn(tenant_id, turn_id).await?.ok_or_else(turn_deleted)?;
    // A turn that waits for an approval has an answer too: it names the approval.
    let answerable = turn.status.is_terminal() || turn.status == TurnStatus::AwaitingApproval;
    if answerable { Ok(turn) } else { Err(ApiError::turn_running(turn_id)) }
}

/// The turn or its events were deleted.
fn turn_deleted() -> ApiError {
    ApiError::conflict("turn_deleted", "The turn of this Idempotency-Key has been deleted; use a new key.")
}

/// Answers a repeated chat request.
pub(crate) async fn chat(
    api: &ApiState,
    tenant_id: Uuid,
    turn_id: Uuid,
    same_body: bool,
    mode: ResponseMode,
) -> Result<Response, ApiError> {
    let turn = first_turn(api, tenant_id, turn_id, same_body).await?;
    let mut response = match mode {
        ResponseMode::Stream => stored_stream(api, &turn).await?,
        ResponseMode::Json if !turn.status.is_terminal() => {
            let awaited = approvals::pending_approval_of_turn(api.app.approvals(), tenant_id, turn_id).await?;
            let approval_id = awaited.map(|approval| approval.id);
            RunningTurn { conversation_id: turn.conversation_id, turn_id, status: turn.status, approval_id }.respond()
        }
        ResponseMode::Json => stored_answer(api, &turn).await.unwrap_or_else(IntoResponse::into_response),
        ResponseMode::Background => {
            RunningTurn { conversation_id: turn.conversation_id, turn_id, status: turn.status, approval_id: None }.respond()
        }
    };
    set_conversation_header(&mut response, turn.conversation_id);
    mark_replayed(&mut response);
    Ok(response)
}

async fn stored_stream(api: &ApiState, turn: &TurnRow) -> Result<Response, ApiError> {
    let records = api.app.records();
    let stream_id = lookup::stream_of(turn);
    let mut out = BytesMut::new();
    for row in lookup::all_events(api.app.streams(), turn.tenant_id, stream_id, Some(turn.id), 0).await? {
        let data = complete_event(records, turn.tenant_id, stream_id, &row).await?;
        sse::frame(&mut out, Some(row.seq), row.kind, &data);
    }
    Ok(sse::response(Body::from(out.freeze())))
}

async fn stored_answer(api: &ApiState, turn: &TurnRow) -> Result<Response, ApiError> {
    let records = api.app.records();
    let stream_id = lookup::stream_of(turn);
    let rows = lookup::all_events(api.app.streams(), turn.tenant_id, stream_id, Some(turn.id), 0).await?;
    let last = rows.iter().find(|row| row.kind.ends_turn()).ok_or_else(turn_deleted)?;
    let data = complete_event(records, turn.tenant_id, stream_id, last).await?;
    answer::ended(turn.conversation_id, last.kind, data.into_bytes())
}

/// Answers a repeated direct call with the result of the first call.
pub(crate) async fn invoke(api: &ApiState, tenant_id: Uuid, turn_id: Uuid, same_body: bool) -> Result<(Uuid, InvokeOutcome), ApiError> {
    let turn = first_turn(api, tenant_id, turn_id, same_body).await?;
    let call = call_of_turn(api, tenant_id, turn.id).await?.ok_or_else(turn_deleted)?;
    if !call.status.is_terminal()
        && let Some(approval) = approvals::pending_approval_of_turn(api.app.approvals(), tenant_id, turn_id).await?
    {
        return Ok((call.id, InvokeOutcome::Awaiting { approval_id: approval.id }));
    }
    Ok((call.id, InvokeOutcome::Done(Box::new(output_of(&call)))))
}

/// The call of a turn that is a direct call.
pub(crate) async fn call_of_turn(api: &ApiState, tenant_id: Uuid, turn_id: Uuid) -> Result<Option<CallRow>, ApiError> {
    let filter = CallFilter { turn_id: Some(turn_id), ..CallFilter::default() };
    let mut calls = api.app.records().calls(tenant_id, filter, Page { limit: 1, ..Page::default() }).await?;
    Ok(calls.pop())
}

/// Marks a response as the answer to a repeated request.
pub(crate) fn mark_replayed(response: &mut Response) {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
}
