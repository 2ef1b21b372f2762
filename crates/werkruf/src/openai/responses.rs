//! The Responses API. Each response is a turn, and its id contains the turn's id.
//!
//! Invariants: the sequence number of an event depends only on the content of the turn (`encode`), so any process can continue any
//! stream. A response of another user, one sent with `store: false` and a deleted one are all answered with 404.

mod compaction;
mod deltas;
mod echo;
mod encode;
mod input_tokens;
mod object;
mod previous;
mod references;
pub(super) mod request;
mod retrieve;
mod stored;
mod stream;
mod structured;
mod summary;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde_json::Value;
use werkruf_contract::{ErrorEvent, Uuid};
use werkruf_llm::history_formats::HistoryFormat;

use self::encode::{Encoder, status_of_error};
use self::object::{ResponseBase, ResponseStatus};
use self::previous::Previous;
use self::request::Request;
pub(super) use self::stored::client_calls_of_turn;
use self::stored::{StoredRequest, StoredResponse};
use self::stream::ResponseStream;
use super::client_events::TurnEvents;
use super::start::{self, StartedTurn, TurnRequest};
use super::{limit_headers, tools, unsupported};
use crate::api::chat::CONVERSATION_ID;
use crate::api::context::ContextHeaders;
use crate::api::policy::{Authenticated, Policy};
use crate::api::{ApiError, ApiState, answer, approvals, body};
use crate::routing::{self, ApiRouter, routes};

/// The code of a request that continues a turn which another request has continued.
const SUPERSEDED: &str = "turn_running";

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Chat.on(routes!(create)))
        .merge(compaction::routes())
        .merge(input_tokens::routes())
        .merge(retrieve::routes())
}

/// Creates a response. Unknown fields are ignored.
#[routing::path(post, path = "/v1/responses", operation_id = "create_response", tag = "openai",
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
    unsupported::check_responses(&fields)?;
    let mut request = Request::read(fields)?;
    request.items = references::resolve(&api.app, &identity.0, std::mem::take(&mut request.items)).await?;
    let (stream, background) = (request.stream, request.echo.background);
    let previous_id = request.echo.previous_response_id.clone();
    let (turn_request, echo) = turn_request(request, raw)?;
    let started = match previous_id {
        // The header decides; a response that does not exist is an error all the same.
        Some(id) if headers.contains_key(CONVERSATION_ID) => {
            previous::stored(&api.app, &identity.0, &id).await?;
            start::start(api, identity, headers, turn_request).await?
        }
        Some(id) => start_after(api, identity, headers, turn_request, &id).await?,
        None => start::start(api, identity, headers, turn_request).await?,
    };
    let base = ResponseBase { turn_id: started.turn_id, conversation_id: started.conversation_id, echo };
    respond(api, identity.0.tenant_id, started, base, stream, background).await
}

/// Starts the turn of a request that continues an earlier response.
async fn start_after(
    api: &ApiState,
    identity: &Authenticated,
    headers: &HeaderMap,
    request: TurnRequest,
    id: &str,
) -> Result<StartedTurn, ApiError> {
    let mut apart = false;
    loop {
        let previous = Previous::find(&api.app, &identity.0, id, apart).await?;
        let request = TurnRequest {
            conversation: Some(previous.conversation_id),
            after: previous.after,
            earlier: previous.history.clone(),
            ..request.clone()
        };
        let started = start::start(api, identity, headers, request).await;
        // Another request continued the response first.
        if matches!(&started, Err(error) if error.code() == SUPERSEDED) && !previous.is_copy() {
            apart = true;
            continue;
        }
        let has_new_turn = matches!(&started, Ok(turn) if !turn.replayed);
        if !has_new_turn {
            previous.withdraw(&api.app, identity.0.tenant_id).await;
        }
        return started;
    }
}

fn turn_request(request: Request, raw: body::RawBody) -> Result<(TurnRequest, echo::RequestEcho), ApiError> {
    let (instructions, options) = (request.echo.instructions_text(), request.options());
    let (temperature, max_output_tokens) = (request.number("temperature"), request.number("max_output_tokens"));
    let Request { items, echo, conversation, body, stream, .. } = request;
    let stored_request = StoredRequest { responses: echo, deleted: false };
    let echo_value = serde_json::to_value(&stored_request).map_err(|_| ApiError::internal())?;
    let turn_request = TurnRequest {
        format: HistoryFormat::Responses,
        values: items,
        instructions,
        conversation,
        after: None,
        earlier: Vec::new(),
        continues: None,
        model: Some(stored_request.responses.model.clone()).filter(|model| !model.is_empty()),
        tools: tools::tools(body.get("tools")),
        tool_choice: tools::choice(body.get("tool_choice")),
        parallel_tool_calls: body.get("parallel_tool_calls").and_then(Value::as_bool),
        temperature,
        max_output_tokens: max_output_tokens
            .filter(|max_output_tokens| (1.0..=f64::from(u32::MAX)).contains(max_output_tokens))
            .map(|max_output_tokens| max_output_tokens as u32),
        max_tool_calls: body.get("max_tool_calls").and_then(Value::as_u64).map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
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
    let mut response = if stream {
        streamed(api, tenant_id, &mut started, base, events).await?
    } else if background && !started.replayed {
        drop(events);
        Json(base.object(&object::ResponseState::with_status(ResponseStatus::Queued))).into_response()
    } else {
        // A request in the background asks how its turn is now.
        let events = if background { TurnEvents::Stored(std::collections::VecDeque::new()) } else { events };
        match wait_for_object(api, tenant_id, base, events).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        }
    };
    started.set_headers(&mut response);
    Ok(response)
}

/// Answers with a stream, or with the error of a turn that fails before its stream begins.
async fn streamed(
    api: &ApiState,
    tenant_id: Uuid,
    started: &mut StartedTurn,
    base: ResponseBase,
    events: TurnEvents,
) -> Result<Response, ApiError> {
    let (background, ids) = (base.echo.background, (started.conversation_id, started.turn_id));
    let failed = |error: &ErrorEvent| ApiError::failed_turn(Some(ids.0), error).into_response();
    if started.replayed {
        // Read from the records, because they also rebuild events that retention has deleted.
        let stored = StoredResponse::load_turn(&api.app, tenant_id, base).await?;
        let unsaid = !background && stored.output().is_empty();
        return Ok(match stored.failure().filter(|error| unsaid && status_of_error(error) == ResponseStatus::Failed) {
            Some(error) => failed(error),
            None => ResponseStream::resumed(&api.app, stored, None).ending_at_approval().respond(),
        });
    }
    let encoder = Encoder::live(base, started.last_step_only);
    let mut stream = ResponseStream::live(&api.app, tenant_id, ids, encoder, events).stopping(std::mem::take(&mut started.stop));
    // A client that asks for work in the background needs the id at once.
    let first = if background { Ok(()) } else { stream.wait_for_first_event().await };
    Ok(first.map_or_else(|error| failed(&error), |()| stream.respond()))
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
