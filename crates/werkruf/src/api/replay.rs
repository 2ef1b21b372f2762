//! The second copy of a request: the answer of the first, or why there is none.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::{HeaderName, HeaderValue, StatusCode};
use werkruf_contract::{TurnStatus, Uuid};
use werkruf_runtime::{InvokeOutcome, complete_event, output_of};
use werkruf_store::{CallFilter, Page, TurnRow};

use super::chat::{Running, Wish, name_conversation};
use super::error::ApiError;
use super::{Door, answer, approvals, lookup, sse};

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The turn that was made under the key, once it has ended or waits for a person's word.
pub(crate) async fn first_turn(door: &Door, tenant_id: Uuid, turn_id: Uuid, same_body: bool) -> Result<TurnRow, ApiError> {
    if !same_body {
        return Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "This Idempotency-Key was used with another body; use a new key for a new request.",
        ));
    }
    let turn = door.app.records().turn(tenant_id, turn_id).await?.ok_or_else(deleted)?;
    // One that waits for a person's word has said what there is to say for now.
    let told = turn.status.is_terminal() || turn.status == TurnStatus::AwaitingApproval;
    if told { Ok(turn) } else { Err(ApiError::turn_running(turn_id)) }
}

/// What it said is not kept any more.
fn deleted() -> ApiError {
    ApiError::conflict("turn_deleted", "The turn of this Idempotency-Key has been deleted; use a new key.")
}

/// A chat again.
pub(crate) async fn chat(door: &Door, tenant_id: Uuid, turn_id: Uuid, same_body: bool, wish: Wish) -> Result<Response, ApiError> {
    let turn = first_turn(door, tenant_id, turn_id, same_body).await?;
    let mut response = match wish {
        Wish::Stream => stored_stream(door, &turn).await?,
        Wish::Json if !turn.status.is_terminal() => {
            let awaited = approvals::awaited_by(door.app.approvals(), tenant_id, turn_id).await?;
            let approval_id = awaited.map(|approval| approval.id);
            Running { conversation_id: turn.conversation_id, turn_id, status: turn.status, approval_id }.respond()
        }
        Wish::Json => stored_answer(door, &turn).await.unwrap_or_else(IntoResponse::into_response),
        Wish::Background => Running { conversation_id: turn.conversation_id, turn_id, status: turn.status, approval_id: None }.respond(),
    };
    name_conversation(&mut response, turn.conversation_id);
    mark(&mut response);
    Ok(response)
}

async fn stored_stream(door: &Door, turn: &TurnRow) -> Result<Response, ApiError> {
    let records = door.app.records();
    let stream_id = lookup::stream_of(turn);
    let mut out = BytesMut::new();
    for row in lookup::all_events(records, turn.tenant_id, stream_id, Some(turn.id), 0).await? {
        let data = complete_event(records, turn.tenant_id, stream_id, &row).await?;
        sse::frame(&mut out, Some(row.seq), row.kind, &data);
    }
    Ok(sse::response(Body::from(out.freeze())))
}

async fn stored_answer(door: &Door, turn: &TurnRow) -> Result<Response, ApiError> {
    let records = door.app.records();
    let stream_id = lookup::stream_of(turn);
    let rows = lookup::all_events(records, turn.tenant_id, stream_id, Some(turn.id), 0).await?;
    let last = rows.iter().find(|row| row.kind.ends_turn()).ok_or_else(deleted)?;
    let data = complete_event(records, turn.tenant_id, stream_id, last).await?;
    answer::ended(turn.conversation_id, last.kind, data.into_bytes())
}

/// A direct call again: the envelope of the first.
pub(crate) async fn invoke(door: &Door, tenant_id: Uuid, turn_id: Uuid, same_body: bool) -> Result<(Uuid, InvokeOutcome), ApiError> {
    let turn = first_turn(door, tenant_id, turn_id, same_body).await?;
    let filter = CallFilter { turn_id: Some(turn.id), ..CallFilter::default() };
    let calls = door.app.records().calls(tenant_id, filter, Page { limit: 1, ..Page::default() }).await?;
    let call = calls.first().ok_or_else(deleted)?;
    if !call.status.is_terminal()
        && let Some(approval) = approvals::awaited_by(door.app.approvals(), tenant_id, turn_id).await?
    {
        return Ok((call.id, InvokeOutcome::Awaiting { approval_id: approval.id }));
    }
    Ok((call.id, InvokeOutcome::Done(Box::new(output_of(call)))))
}

/// Says that this is not the first answer.
pub(crate) fn mark(response: &mut Response) {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
}
