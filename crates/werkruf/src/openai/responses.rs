//! The Responses API. A turn is a response; its id is the turn's.
//!
//! Invariants: an event's number follows from what the turn says (`encode`), so any process can go on with any stream;
//! another person's response, one that was not to be stored and one that was taken back are all not there.

mod encode;
mod follow;
mod object;
mod pieces;
mod references;
mod request;
mod retrieve;
mod told;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::{Deadline, Uuid};
use werkruf_llm::history_formats::HistoryFormat;

use self::encode::{Encoder, standing_of};
use self::follow::Follow;
use self::object::{Standing, Subject};
use self::request::Request;
use self::told::{Mark, Told};
use super::begin::{self, Asked, Begun};
use super::heard::Events;
use super::tools;
use crate::api::policy::{Policy, Who};
use crate::api::{ApiError, Door, body};

const APPROVAL_ID: HeaderName = HeaderName::from_static("x-approval-id");
/// Longer than any turn lasts: its own time, and the grace for its last word.
const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Chat.on(routes!(create))).merge(retrieve::routes())
}

/// Creates a response. Fields that are not known are ignored.
#[utoipa::path(post, path = "/v1/responses", operation_id = "create_response", tag = "openai",
    request_body(content = Object, description = "As OpenAI describes it; unknown fields are ignored."),
    responses(
        (status = 200, body = Object, description = "A response object, or its events as text/event-stream with `stream: true`."),
        (status = "4XX", body = Object), (status = "5XX", body = Object),
    ))]
async fn create(State(door): State<Arc<Door>>, who: Who, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let raw = begin::bytes(body).await?;
    let sent: Map<String, Value> = body::json(&raw)?;
    let mut request = Request::read(sent)?;
    let app = &door.app;
    let previous = match &request.echo.previous_response_id {
        Some(name) => Some(previous(&door, &who, name).await?),
        None => None,
    };
    let items = references::resolve(app, &who.0, std::mem::take(&mut request.items)).await?;
    let (stream, background) = (request.stream, request.echo.background);
    let (asked, echo) = asked(request, items, previous, raw)?;
    let begun = begin::begin(&door, &who, &headers, asked).await?;
    let subject = Subject { turn_id: begun.turn_id, conversation_id: begun.conversation_id, echo };
    answer(&door, who.0.tenant_id, begun, subject, stream, background).await
}

/// The conversation of an earlier response. It may have gone on since; then it goes on from there.
async fn previous(door: &Door, who: &Who, name: &str) -> Result<Uuid, ApiError> {
    let found = Told::find(&door.app, &who.0, name).await?;
    let unknown =
        || ApiError::new(StatusCode::NOT_FOUND, "previous_response_not_found", format!("Previous response with id '{name}' not found."));
    found.map(|told| told.subject.conversation_id).ok_or_else(unknown)
}

fn asked(request: Request, items: Vec<Value>, previous: Option<Uuid>, raw: bytes::Bytes) -> Result<(Asked, object::Echo), ApiError> {
    let (instructions, options) = (request.instructions(), request.options());
    let (temperature, most) = (request.number("temperature"), request.number("max_output_tokens"));
    let Request { echo, conversation, body, .. } = request;
    let mark = Mark { responses: echo, deleted: false };
    let door = serde_json::to_value(&mark).map_err(|_| ApiError::internal())?;
    let asked = Asked {
        format: HistoryFormat::Responses,
        values: items,
        instructions,
        conversation: previous.or(conversation),
        model: Some(mark.responses.model.clone()).filter(|model| !model.is_empty()),
        tools: tools::tools(body.get("tools")),
        tool_choice: tools::choice(body.get("tool_choice")),
        parallel_tool_calls: body.get("parallel_tool_calls").and_then(Value::as_bool),
        temperature,
        max_output_tokens: most.filter(|most| (1.0..=f64::from(u32::MAX)).contains(most)).map(|most| most as u32),
        options,
        door,
        raw,
    };
    Ok((asked, mark.responses))
}

async fn answer(
    door: &Door,
    tenant_id: Uuid,
    mut begun: Begun,
    subject: Subject,
    stream: bool,
    background: bool,
) -> Result<Response, ApiError> {
    let events = std::mem::replace(&mut begun.events, Events::Stored(std::collections::VecDeque::new()));
    let mut response = if stream && begun.replayed {
        // From the records, where events that are no longer kept are made up for.
        Follow::resumed(&door.app, Told::of(&door.app, tenant_id, subject).await?, None).hasty().respond()
    } else if stream {
        let ids = (begun.conversation_id, begun.turn_id);
        Follow::begun(&door.app, tenant_id, ids, Encoder::new(subject, None), events).respond()
    } else if background && !begun.replayed {
        drop(events);
        Json(subject.object(&object::State::just(Standing::Queued))).into_response()
    } else {
        match whole(door, tenant_id, subject, events).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        }
    };
    begun.mark(&mut response);
    Ok(response)
}

/// Waits until the turn has ended, or should have.
async fn whole(door: &Door, tenant_id: Uuid, subject: Subject, mut events: Events) -> Result<Response, ApiError> {
    let turn = Duration::from_millis(door.app.config.limits.turn_ms);
    let end = Deadline::after(turn.saturating_add(GRACE)).instant();
    while let Ok(Some(event)) = tokio::time::timeout_at(end.into(), events.recv()).await {
        if event.kind.ends_turn() {
            break;
        }
    }
    let conversation_id = subject.conversation_id;
    let told = Told::of(&door.app, tenant_id, subject).await?;
    match told.failure() {
        // A stop is no fault: clients would try again by themselves.
        Some(error) if standing_of(error) == Standing::Failed => Err(ApiError::failed_turn(Some(conversation_id), error)),
        _ => shown(door, &told).await,
    }
}

/// The object as it stands.
async fn shown(door: &Door, told: &Told) -> Result<Response, ApiError> {
    let (object, approval_id) = told.object(&door.app).await?;
    let mut response = Json(object).into_response();
    if let Some(value) = approval_id.and_then(|id| HeaderValue::from_str(&id.to_string()).ok()) {
        response.headers_mut().insert(APPROVAL_ID, value);
    }
    Ok(response)
}
