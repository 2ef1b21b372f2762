//! `POST /v1/chat/completions`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::HeaderMap;
use tokio::time::{Interval, timeout_at};
use werkruf_contract::{Deadline, EventType, Uuid};
use werkruf_runtime::digest_after_answer;

use super::chat_request::{self, ResponseOptions};
use super::client_events::{ClientEvent, ClientEventReader, TurnEvents};
use super::completion::{ChunkWriter, CommonFields, completion_object, join_paragraphs};
use super::start::{self, FIRST_EVENT_WAIT, StartedTurn, start};
use super::stop_on_leave::StopOnLeave;
use super::transcript::TranscriptDigest;
use super::{error_body, limit_headers};
use crate::api::context::ContextHeaders;
use crate::api::error::ApiError;
use crate::api::policy::{Authenticated, Policy};
use crate::api::sse::{self, CHUNK_BYTES, KEEP_ALIVE};
use crate::api::{ApiState, answer, approvals, body};
use crate::routing::{self, ApiRouter, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(create)))
}

/// Chat Completions, compatible with OpenAI. `model` names an assistant; any other name means the default assistant.
#[routing::path(post, path = "/v1/chat/completions", operation_id = "create_chat_completion", tag = "openai",
    request_body = ref("#/components/schemas/ChatCompletionRequest"),
    params(ContextHeaders,
        ("X-Conversation-Id" = Option<String>, Header, description = "Continues this conversation with the new messages of the request."),
        ("X-Werkruf-Tools" = Option<String>, Header, description = "The server's tools that may be used: `none`, or names separated by commas."),
        ("Idempotency-Key" = Option<String>, Header, description = "A request with the same key and body returns the same turn."),
    ),
    responses(
        (status = 200, body = Object, description = "A chat.completion, or its chunks as text/event-stream."),
        (status = "4XX", description = "In OpenAI's format."), (status = "5XX", description = "In OpenAI's format."),
    ))]
async fn create(State(api): State<Arc<ApiState>>, identity: Authenticated, headers: HeaderMap, body: body::RequestBody) -> Response {
    let mut response = complete(&api, &identity, &headers, body).await.unwrap_or_else(IntoResponse::into_response);
    limit_headers::set(&api, &identity, &mut response);
    response
}

async fn complete(
    api: &Arc<ApiState>,
    identity: &Authenticated,
    headers: &HeaderMap,
    body: body::RequestBody,
) -> Result<Response, ApiError> {
    let (raw, fields) = start::read_fields(api, identity, headers, body, &chat_request::FIELDS).await?;
    let (request, options) = chat_request::read(raw, fields)?;
    let mut started = start(api, identity, headers, request).await?;
    let mut response = match options.stream {
        true => streamed(api, &mut started, options).await,
        false => collected(api, &mut started, options).await,
    }
    .unwrap_or_else(IntoResponse::into_response);
    started.set_headers(&mut response);
    Ok(response)
}

fn common_fields(started: &StartedTurn, options: ResponseOptions) -> CommonFields {
    CommonFields::new(started.turn_id, started.model.clone(), options, started.texts.clone())
}

/// Waits until the turn has ended or should have ended, and answers with one object.
async fn collected(api: &ApiState, started: &mut StartedTurn, options: ResponseOptions) -> Result<Response, ApiError> {
    let common = common_fields(started, options);
    let mut reader = ClientEventReader::new(started.last_step_only);
    let mut events = Vec::new();
    let end = answer::wait_deadline(&api.app);
    while let Ok(Some(event)) = timeout_at(end, started.events.recv()).await {
        // Only stored text is used: nothing was sent yet, so text that the model restarts must not count.
        let unstored_text = matches!(event.kind, EventType::AssistantToken | EventType::AssistantSnapshot) && event.seq.is_none();
        if !unstored_text && event.kind != EventType::AssistantReset {
            events.extend(reader.read(&event));
        }
        if reader.has_ended() {
            break;
        }
    }
    events.extend(reader.end(started.turn_id));
    let answer = completion_object(&common, &events).map_err(|failure| error_body::failed_turn(&failure))?;
    if let Some(ClientEvent::AwaitingApproval(_)) = events.last() {
        // The client resends this text with its next request; the digest then leads to the turn that waits for the approval.
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        api.app
            .client_store
            .put_transcript_digest(started.tenant_id, started.turn_id, digest_after_answer(&started.digest, text, &[]))
            .await?;
    }
    let mut response = Json(answer).into_response();
    set_approval_header(&mut response, &events);
    Ok(response)
}

fn set_approval_header(response: &mut Response, events: &[ClientEvent]) {
    if let Some(ClientEvent::AwaitingApproval(approvals)) = events.last()
        && let Some(first) = approvals.first()
    {
        approvals::set_approval_header(response, first.approval_id);
    }
}

/// Answers with a stream of chunks. A turn that fails within [`FIRST_EVENT_WAIT`] gets an HTTP error
/// status instead.
async fn streamed(api: &Arc<ApiState>, started: &mut StartedTurn, options: ResponseOptions) -> Result<Response, ApiError> {
    let (common, turn_id) = (common_fields(started, options), started.turn_id);
    let mut reader = ClientEventReader::new(started.last_step_only);
    let mut first = Vec::new();
    let end = Deadline::after(FIRST_EVENT_WAIT).instant();
    while first.is_empty() {
        match timeout_at(end.into(), started.events.recv()).await {
            Ok(Some(event)) => first.extend(reader.read(&event)),
            Ok(None) => first.extend(reader.end(turn_id)),
            Err(_) => break,
        }
    }
    if let Some(ClientEvent::Failed(failed)) = first.first() {
        started.stop.answered();
        return Err(error_body::failed_turn(failed));
    }
    let chunks = ChunkWriter::new(common);
    let mut out = BytesMut::new();
    chunks.begin(&mut out);
    let ticks = sse::keep_alive_timer();
    let events = std::mem::replace(&mut started.events, TurnEvents::Stored(Default::default()));
    let (tenant_id, digest) = (started.tenant_id, started.digest.clone());
    let (stop, sent_text) = (std::mem::take(&mut started.stop), String::new());
    let mut live = ChunkStream { events, reader, chunks, out, ticks, turn_id, api: Arc::clone(api), tenant_id, digest, sent_text, stop };
    first.iter().for_each(|event| live.write(event));
    let mut response = sse::response(Body::from_stream(live));
    set_approval_header(&mut response, &first);
    Ok(response)
}

/// The body of a streamed answer.
struct ChunkStream {
    events: TurnEvents,
    reader: ClientEventReader,
    chunks: ChunkWriter,
    out: BytesMut,
    ticks: Interval,
    turn_id: Uuid,
    api: Arc<ApiState>,
    tenant_id: Uuid,
    /// The digest of the client's transcript, its request included.
    digest: TranscriptDigest,
    /// The text that was sent since.
    sent_text: String,
    /// Stops the turn when the client leaves.
    stop: StopOnLeave,
}

impl ChunkStream {
    fn write(&mut self, event: &ClientEvent) {
        match event {
            ClientEvent::Text { text, .. } => self.sent_text.push_str(text),
            ClientEvent::AwaitingApproval(approvals) => {
                // The client resends this text with its next request; the digest then leads to the turn that waits for the approval.
                let text = join_paragraphs(std::mem::take(&mut self.sent_text), &self.chunks.approval_text(approvals));
                let (api, digest) = (Arc::clone(&self.api), digest_after_answer(&self.digest, &text, &[]));
                let (tenant_id, turn_id) = (self.tenant_id, self.turn_id);
                self.api.app.tasks.spawn(async move {
                    if let Err(error) = api.app.client_store.put_transcript_digest(tenant_id, turn_id, digest).await {
                        tracing::warn!(%turn_id, %error, "the transcript digest of a client could not be stored");
                    }
                });
            }
            ClientEvent::Annotations(_) | ClientEvent::Answered(_) | ClientEvent::Failed(_) => {}
        }
        self.chunks.write(&mut self.out, event);
    }

    /// Writes the events that are ready, up to one chunk.
    fn fill(&mut self, cx: &mut Context<'_>) {
        while !self.reader.has_ended() && self.out.len() < CHUNK_BYTES {
            match self.events.poll_recv(cx) {
                Poll::Ready(Some(event)) => {
                    for client_event in self.reader.read(&event) {
                        self.write(&client_event);
                    }
                }
                Poll::Ready(None) => {
                    if let Some(client_event) = self.reader.end(self.turn_id) {
                        self.write(&client_event);
                    }
                }
                Poll::Pending => return,
            }
        }
    }
}

impl Stream for ChunkStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.fill(cx);
        if this.reader.has_ended() {
            this.stop.answered();
        }
        if !this.out.is_empty() {
            return Poll::Ready(Some(Ok(this.out.split().freeze())));
        }
        if this.reader.has_ended() {
            return Poll::Ready(None);
        }
        this.ticks.poll_tick(cx).map(|_| Some(Ok(Bytes::from_static(KEEP_ALIVE))))
    }
}
