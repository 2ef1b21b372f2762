//! The Responses API. Each response is a turn, and its id contains the turn's id.
//!
//! Invariants: the sequence number of an event depends only on the content of the turn (`encode`), so any process can continue any
//! stream. A response of another user, one sent with `store: false` and a deleted one are all answered with 404.

mod deltas;
mod encode;
mod object;
mod references;
pub(super) mod request;
mod retrieve;
mod stored;
mod stream;
mod structured;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::Uuid;
use werkruf_llm::history_formats::HistoryFormat;

use self::encode::{Encoder, status_of_error};
use self::object::{ResponseBase, ResponseStatus};
use self::request::Request;
use self::stored::{StoredRequest, StoredResponse};
use self::stream::ResponseStream;
use super::client_events::TurnEvents;
use super::start::{self, StartedTurn, TurnRequest};
use super::{limit_headers, tools};
use crate::api::context::ContextHeaders;
use crate::api::policy::{Authenticated, Policy};
use crate::api::{ApiError, ApiState, answer, approvals, body};

pub(crate) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::default().routes(Policy::Chat.on(routes!(create))).merge(retrieve::routes())
}

/// Creates a response. Unknown fields are ignored.
#[utoipa::path(post, path = "/v1/responses", operation_id = "create_response", tag = "openai",
    request_body(content = Object, description = "As OpenAI describes it; unknown fields are ignored."),
    params(ContextHeaders),
    responses(
        (status = 200, body = Object, description = "A response object, or its events as text/event-stream with `stream: true`."),
        (status = "4XX", body = Object), (status = "5XX", body = Object),
    ))]
async fn create(State(api): State<Arc<ApiState>>, identity: Authenticated, headers: HeaderMap, body: body::RequestBody) -> Response {
    let mut response = create_response(&api, &identity, &headers, body).await.unwrap_or_else(IntoResponse::into_response);
    limit_headers::set(&api, &identity, &mut response);
    response
}

async fn create_response(
    api: &ApiState,
    identity: &Authenticated,
    headers: &HeaderMap,
    body: body::RequestBody,
) -> Result<Response, ApiError> {
    let (raw, fields) = start::read_fields(api, identity, headers, body, &request::FIELDS).await?;
    let mut request = Request::read(fields)?;
    let app = &api.app;
    let previous = match &request.echo.previous_response_id {
        Some(id) => Some(previous_conversation(api, identity, id).await?),
        None => None,
    };
    let items = references::resolve(app, &identity.0, std::mem::take(&mut request.items)).await?;
    let (stream, background) = (request.stream, request.echo.background);
    let (turn_request, echo) = turn_request(request, items, previous, raw)?;
    let started = start::start(api, identity, headers, turn_request).await?;
    let base = ResponseBase { turn_id: started.turn_id, conversation_id: started.conversation_id, echo };
    respond(api, identity.0.tenant_id, started, base, stream, background).await
}

/// The conversation of an earlier response. The new turn continues at the current end of that conversation, even if other turns
/// followed the earlier response.
async fn previous_conversation(api: &ApiState, identity: &Authenticated, id: &str) -> Result<Uuid, ApiError> {
    let found = StoredResponse::find(&api.app, &identity.0, id).await?;
    let unknown =
        || ApiError::new(StatusCode::NOT_FOUND, "previous_response_not_found", format!("Previous response with id '{id}' not found."));
    found.map(|stored| stored.base.conversation_id).ok_or_else(unknown)
}

fn turn_request(
    request: Request,
    items: Vec<Value>,
    previous: Option<Uuid>,
    raw: body::RawBody,
) -> Result<(TurnRequest, object::RequestEcho), ApiError> {
    let (instructions, options) = (request.instructions(), request.options());
    let (temperature, max_output_tokens) = (request.number("temperature"), request.number("max_output_tokens"));
    let Request { echo, conversation, body, stream, .. } = request;
    let stored_request = StoredRequest { responses: echo, deleted: false };
    let echo_value = serde_json::to_value(&stored_request).map_err(|_| ApiError::internal())?;
    let turn_request = TurnRequest {
        format: HistoryFormat::Responses,
        values: items,
        instructions,
        conversation: previous.or(conversation),
        model: Some(stored_request.responses.model.clone()).filter(|model| !model.is_empty()),
        tools: tools::tools(body.get("tools")),
        tool_choice: tools::choice(body.get("tool_choice")),
        parallel_tool_calls: body.get("parallel_tool_calls").and_then(Value::as_bool),
        temperature,
        max_output_tokens: max_output_tokens
            .filter(|max_output_tokens| (1.0..=f64::from(u32::MAX)).contains(max_output_tokens))
            .map(|max_output_tokens| max_output_tokens as u32),
        options,
        allowed_tools: tools::allowed(body.get("tool_choice")),
        stops_on_leave: stream && !stored_request.responses.background,
        echo: echo_value,
        raw,
    };
    Ok((turn_request, stored_request.responses))
}

async fn respond(
    api: &ApiState,
    tenant_id: Uuid,
    mut started: StartedTurn,
    base: ResponseBase,
    stream: bool,
    background: bool,
) -> Result<Response, ApiError> {
    let events = std::mem::replace(&mut started.events, TurnEvents::Stored(std::collections::VecDeque::new()));
    let mut response = if stream && started.replayed {
        // Read from the records, because they also rebuild events that retention has deleted.
        ResponseStream::resumed(&api.app, StoredResponse::load_turn(&api.app, tenant_id, base).await?, None).ending_at_approval().respond()
    } else if stream {
        let ids = (started.conversation_id, started.turn_id);
        let encoder = Encoder::live(base, started.last_step_only);
        ResponseStream::live(&api.app, tenant_id, ids, encoder, events).stopping(std::mem::take(&mut started.stop)).respond()
    } else if background && !started.replayed {
        drop(events);
        Json(base.object(&object::ResponseState::with_status(ResponseStatus::Queued))).into_response()
    } else {
        match wait_for_object(api, tenant_id, base, events).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        }
    };
    started.set_headers(&mut response);
    Ok(response)
}

/// Waits until the turn has ended or should have ended.
async fn wait_for_object(api: &ApiState, tenant_id: Uuid, base: ResponseBase, mut events: TurnEvents) -> Result<Response, ApiError> {
    let end = answer::wait_deadline(&api.app);
    while let Ok(Some(event)) = tokio::time::timeout_at(end, events.recv()).await {
        if event.kind.ends_turn() {
            break;
        }
    }
    let conversation_id = base.conversation_id;
    let stored = StoredResponse::load_turn(&api.app, tenant_id, base).await?;
    match stored.failure() {
        // A canceled turn is not an HTTP error: clients would retry the request automatically.
        Some(error) if status_of_error(error) == ResponseStatus::Failed => Err(ApiError::failed_turn(Some(conversation_id), error)),
        _ => current_object(api, &stored).await,
    }
}

/// Answers with the current response object.
async fn current_object(api: &ApiState, stored: &StoredResponse) -> Result<Response, ApiError> {
    let (object, approval_id) = stored.object(&api.app).await?;
    let mut response = Json(object).into_response();
    if let Some(id) = approval_id {
        approvals::set_approval_header(&mut response, id);
    }
    Ok(response)
}
