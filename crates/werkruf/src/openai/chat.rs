//! `POST /v1/chat/completions`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use tokio::time::{Interval, interval, timeout_at};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::{Deadline, EventType, Uuid};
use werkruf_runtime::digest_after_answer;

use super::begin::{self, Begun, begin};
use super::chat_request::{self, Wishes};
use super::completion::{Chunks, Head, separated, whole};
use super::heard::{Events, Heard, Listener};
use super::refusal;
use super::seen::Sight;
use crate::api::error::ApiError;
use crate::api::policy::{Policy, Who};
use crate::api::sse::{self, AT_ONCE};
use crate::api::{Door, body};

/// The approval an answer waits for.
pub(crate) const APPROVAL_ID: HeaderName = HeaderName::from_static("x-approval-id");
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A turn that fails this soon is told with its HTTP status; from then on the client sees that somebody is there.
const HOLD: Duration = Duration::from_secs(3);
/// Longer than any turn lasts: its own time, and the grace for its last word.
const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Chat.on(routes!(create)))
}

/// Chat Completions as OpenAI has them. `model` names an assistant; any other name means the default one.
#[utoipa::path(post, path = "/v1/chat/completions", operation_id = "create_chat_completion", tag = "openai",
    request_body(content = Object, description = "As OpenAI describes it; unknown fields are ignored."),
    params(
        ("X-Conversation-Id" = Option<String>, Header, description = "Continues this conversation with what is new in the request."),
        ("X-Werkruf-Tools" = Option<String>, Header, description = "The server's tools that may be used: none, or names between commas."),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and body is the same turn."),
    ),
    responses(
        (status = 200, body = Object, description = "A chat.completion, or its chunks as text/event-stream."),
        (status = "4XX", description = "In OpenAI's shape."), (status = "5XX", description = "In OpenAI's shape."),
    ))]
async fn create(State(door): State<Arc<Door>>, who: Who, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let raw = begin::bytes(body).await?;
    let fields: Map<String, Value> = body::json(&raw)?;
    let (asked, wishes) = chat_request::read(raw, fields)?;
    let mut begun = begin(&door, &who, &headers, asked).await?;
    let mut response = match wishes.stream {
        true => streamed(&door, &mut begun, wishes).await,
        false => collected(&door, &mut begun, wishes).await,
    }
    .unwrap_or_else(IntoResponse::into_response);
    begun.mark(&mut response);
    Ok(response)
}

fn head(begun: &Begun, wishes: Wishes) -> Head {
    let made = begun.turn_id.get_timestamp().map_or(0, |time| time.to_unix().0);
    Head {
        id: format!("chatcmpl-{}", begun.turn_id.simple()),
        created: i64::try_from(made).unwrap_or_default(),
        model: wishes.model.clone().unwrap_or_else(|| begun.model.clone()),
        wishes,
        words: begun.words.clone(),
    }
}

/// Listens until the turn has ended, or should have.
async fn collected(door: &Door, begun: &mut Begun, wishes: Wishes) -> Result<Response, ApiError> {
    let head = head(begun, wishes);
    let mut listener = Listener::default();
    let mut heard = Vec::new();
    let end = Deadline::after(Duration::from_millis(door.app.config.limits.turn_ms).saturating_add(GRACE)).instant();
    while let Ok(Some(event)) = timeout_at(end.into(), begun.events.recv()).await {
        // Nothing was shown yet: text that a model begins anew never was. What counts stands in the rows.
        let shown = matches!(event.kind, EventType::AssistantToken | EventType::AssistantSnapshot) && event.seq.is_none();
        if !shown && event.kind != EventType::AssistantReset {
            heard.extend(listener.hear(&event));
        }
        if listener.has_ended() {
            break;
        }
    }
    heard.extend(listener.end(begun.turn_id));
    let answer = whole(&head, &heard).map_err(|failed| refusal::failed(&failed))?;
    if let Some(Heard::Waiting(_)) = heard.last() {
        // The client will send this text again: that is how it finds back to the turn that goes on later.
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        door.app.clients().put_transcript_digest(begun.tenant_id, begun.turn_id, digest_after_answer(&begun.sight, text, &[])).await?;
    }
    let mut response = Json(answer).into_response();
    name_approval(&mut response, &heard);
    Ok(response)
}

fn name_approval(response: &mut Response, heard: &[Heard]) {
    if let Some(Heard::Waiting(awaited)) = heard.last()
        && let Some(first) = awaited.first()
        && let Ok(value) = HeaderValue::from_str(&first.approval_id.to_string())
    {
        response.headers_mut().insert(APPROVAL_ID, value);
    }
}

/// Chunks as they come. What is heard at once decides the status.
async fn streamed(door: &Arc<Door>, begun: &mut Begun, wishes: Wishes) -> Result<Response, ApiError> {
    let (head, turn_id) = (head(begun, wishes), begun.turn_id);
    let mut listener = Listener::default();
    let mut first = Vec::new();
    let end = Deadline::after(HOLD).instant();
    while first.is_empty() {
        match timeout_at(end.into(), begun.events.recv()).await {
            Ok(Some(event)) => first.extend(listener.hear(&event)),
            Ok(None) => first.extend(listener.end(turn_id)),
            Err(_) => break,
        }
    }
    if let Some(Heard::Failed(failed)) = first.first() {
        return Err(refusal::failed(failed));
    }
    let chunks = Chunks::new(head);
    let mut out = BytesMut::new();
    chunks.begin(&mut out);
    let mut ticks = interval(KEEP_ALIVE);
    ticks.reset();
    let events = std::mem::replace(&mut begun.events, Events::Stored(Default::default()));
    let (tenant_id, sight) = (begun.tenant_id, begun.sight.clone());
    let mut live = Live { events, listener, chunks, out, ticks, turn_id, door: Arc::clone(door), tenant_id, sight, said: String::new() };
    first.iter().for_each(|heard| live.tell(heard));
    let mut response = sse::response(Body::from_stream(live));
    name_approval(&mut response, &first);
    Ok(response)
}

/// A stream's body.
struct Live {
    events: Events,
    listener: Listener,
    chunks: Chunks,
    out: BytesMut,
    ticks: Interval,
    turn_id: Uuid,
    door: Arc<Door>,
    tenant_id: Uuid,
    /// What the client had seen with its request, and what it was told since.
    sight: Sight,
    said: String,
}

impl Live {
    fn tell(&mut self, heard: &Heard) {
        match heard {
            Heard::Text { text, .. } => self.said.push_str(text),
            Heard::Waiting(awaited) => {
                // The client will send this text again: that is how it finds back to the turn that goes on later.
                let said = separated(std::mem::take(&mut self.said), &self.chunks.waiting(awaited));
                let (door, seen) = (Arc::clone(&self.door), digest_after_answer(&self.sight, &said, &[]));
                let (tenant_id, turn_id) = (self.tenant_id, self.turn_id);
                self.door.app.tasks.spawn(async move {
                    if let Err(error) = door.app.clients().put_transcript_digest(tenant_id, turn_id, seen).await {
                        tracing::warn!(%turn_id, %error, "what a client has seen could not be kept");
                    }
                });
            }
            Heard::Done(_) | Heard::Failed(_) => {}
        }
        self.chunks.tell(&mut self.out, heard);
    }

    /// Writes what is there, up to a piece.
    fn take(&mut self, cx: &mut Context<'_>) {
        while !self.listener.has_ended() && self.out.len() < AT_ONCE {
            match self.events.poll_recv(cx) {
                Poll::Ready(Some(event)) => {
                    for heard in self.listener.hear(&event) {
                        self.tell(&heard);
                    }
                }
                Poll::Ready(None) => {
                    if let Some(heard) = self.listener.end(self.turn_id) {
                        self.tell(&heard);
                    }
                }
                Poll::Pending => return,
            }
        }
    }
}

impl Stream for Live {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.take(cx);
        if !this.out.is_empty() {
            return Poll::Ready(Some(Ok(this.out.split().freeze())));
        }
        if this.listener.has_ended() {
            return Poll::Ready(None);
        }
        this.ticks.poll_tick(cx).map(|_| Some(Ok(Bytes::from_static(b": keep-alive\n\n"))))
    }
}
