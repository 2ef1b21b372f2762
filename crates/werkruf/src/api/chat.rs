//! `POST /api/chat`: starts a turn and answers with its events, with one JSON object, or at once while it runs in the background.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use werkruf_contract::{TurnStatus, Uuid, is_locale};
use werkruf_runtime::{AcceptedTurn, InboundMessage, Refusal};

use super::context::ContextHeaders;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::sse::LiveBody;
use super::{ApiState, answer, body, context, replay};
use crate::routing::{self, ApiRouter, ToSchema, routes};

/// Header: the conversation that a response belongs to.
pub(crate) const CONVERSATION_ID: HeaderName = HeaderName::from_static("x-conversation-id");

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(chat))).routes(Policy::Chat.on(routes!(chat_rag)))
}

/// A message for an assistant. Fields not named here are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct ChatRequest {
    #[serde(default)]
    pub(super) message: String,
    /// The conversation to continue. Without it a new conversation is created.
    #[serde(default)]
    conversation_id: Option<String>,
    /// The name that older clients use for `conversation_id`.
    #[serde(default, rename = "chatId")]
    chat_id: Option<String>,
    #[serde(default)]
    assistant: Option<String>,
    /// Whether debug events are sent. Needs scope admin.
    #[serde(default)]
    debug: Option<bool>,
    #[serde(default)]
    locale: Option<String>,
    /// Whether to answer at once, while the turn runs in the background.
    #[serde(default)]
    background: Option<bool>,
}

/// A turn that has not ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunningTurn {
    pub(crate) conversation_id: Option<Uuid>,
    pub(crate) turn_id: Uuid,
    #[schema(value_type = String)]
    pub(crate) status: TurnStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_id: Option<Uuid>,
}

impl RunningTurn {
    /// 202, with the path of the turn in `Location`.
    pub(crate) fn respond(self) -> Response {
        let mut response = (StatusCode::ACCEPTED, Json(&self)).into_response();
        if let Ok(location) = HeaderValue::from_str(&format!("/api/turns/{}", self.turn_id)) {
            response.headers_mut().insert(LOCATION, location);
        }
        response
    }
}

/// The channel of the chat routes.
const CHANNEL: &str = "web";

/// Both chat routes in idempotency keys: a request that is repeated on the other path is the same.
const ROUTE: &str = "chat";

/// How the result of the turn is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    Stream,
    Json,
    Background,
}

/// Sends a message. Server-sent events, unless `Accept` names `application/json`.
#[routing::path(post, path = "/api/chat", tag = "chat", request_body = ChatRequest,
    params(ContextHeaders, ("Idempotency-Key" = Option<String>, Header, description = "A request with the same key and body returns the same turn.")),
    responses(
        (status = 200, body = ref("#/components/schemas/Final"), description = "JSON, or the events of the turn as text/event-stream."),
        (status = 202, body = RunningTurn, description = "`background: true`, or an approval is pending."),
        (status = "4XX", body = ref("#/components/schemas/Error")), (status = "5XX", body = ref("#/components/schemas/Error")),
    ))]
async fn chat(caller: ApiCaller, headers: HeaderMap, body: body::RequestBody) -> Result<Response, ApiError> {
    start_turn(caller, &headers, body).await
}

/// The same as `POST /api/chat`, at the path that older clients use.
#[routing::path(post, path = "/functions/v1/chat-rag", tag = "chat", request_body = ChatRequest,
    params(ContextHeaders, ("Idempotency-Key" = Option<String>, Header, description = "As on `POST /api/chat`.")),
    responses(
        (status = 200, body = ref("#/components/schemas/Final"), description = "JSON, or the events of the turn as text/event-stream."),
        (status = 202, body = RunningTurn, description = "`background: true`, or an approval is pending."),
        (status = "4XX", body = ref("#/components/schemas/Error")), (status = "5XX", body = ref("#/components/schemas/Error")),
    ))]
async fn chat_rag(caller: ApiCaller, headers: HeaderMap, body: body::RequestBody) -> Result<Response, ApiError> {
    start_turn(caller, &headers, body).await
}

async fn start_turn(ApiCaller { api, identity }: ApiCaller, headers: &HeaderMap, body: body::RequestBody) -> Result<Response, ApiError> {
    let caller = identity.caller()?;
    // A repeated request starts no turn; the runtime tells.
    if !body::has_idempotency_key(headers) {
        api.app.runtime.check_place()?;
        api.app.runtime.check_turn_limits(&caller, CHANNEL)?;
    }
    let raw = body::bytes(body).await?;
    let request: ChatRequest = body::json(&raw)?;
    if request.message.trim().is_empty() {
        return Err(ApiError::invalid("The message is empty; put the user's text into the field message."));
    }
    if request.locale.as_deref().is_some_and(|locale| !is_locale(locale)) {
        return Err(ApiError::invalid("The locale is no language tag; write one such as de-DE."));
    }
    let mode = if request.background == Some(true) {
        ResponseMode::Background
    } else if body::accepts(headers, "application/json") {
        ResponseMode::Json
    } else {
        ResponseMode::Stream
    };
    let conversation_id = request
        .conversation_id
        .or(request.chat_id)
        .map(|id| Uuid::parse_str(&id).map_err(|_| ApiError::not_found("conversation")))
        .transpose()?;
    let inbound = InboundMessage {
        debug: request.debug == Some(true) && caller.admin,
        caller,
        conversation_id,
        message: request.message,
        assistant: request.assistant,
        channel: CHANNEL.to_owned(),
        locale: request.locale,
        idempotency: body::idempotency(headers, ROUTE, &raw)?,
        inbound: None,
        context: context::requested(&api, headers, context::trace_id(headers, None, None)?)?,
        parts: Vec::new(),
        client: None,
        results: Vec::new(),
        after: None,
        held: Some(raw.held()),
    };
    let runtime = api.app.runtime.clone();
    match api.run_detached(async move { runtime.chat(inbound).await }).await? {
        Ok(accepted) => respond(&api, mode, accepted).await,
        Err(Refusal::Duplicate { turn_id, same_body }) => replay::chat(&api, identity.tenant_id, turn_id, same_body, mode).await,
        Err(refusal) => Err(refusal.into()),
    }
}

async fn respond(api: &ApiState, mode: ResponseMode, accepted: AcceptedTurn) -> Result<Response, ApiError> {
    let conversation_id = accepted.conversation_id;
    let mut response = match mode {
        ResponseMode::Stream => LiveBody::of_turn(accepted.events).respond(),
        ResponseMode::Json => match answer::collect(&api.app, accepted).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        },
        ResponseMode::Background => {
            let (turn_id, status) = (accepted.turn_id, TurnStatus::Accepted);
            RunningTurn { conversation_id: Some(conversation_id), turn_id, status, approval_id: None }.respond()
        }
    };
    set_conversation_header(&mut response, Some(conversation_id));
    Ok(response)
}

/// Sets the header `X-Conversation-Id`.
pub(crate) fn set_conversation_header(response: &mut Response, conversation_id: Option<Uuid>) {
    if let Some(value) = conversation_id.and_then(|id| HeaderValue::from_str(&id.to_string()).ok()) {
        response.headers_mut().insert(CONVERSATION_ID, value);
    }
}
