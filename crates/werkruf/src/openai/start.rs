//! Starts the turn of a request to the OpenAI-compatible APIs: converts the request into a message for the runtime.
//!
//! The conversation of a request is, in this order: the one it names; the one whose transcript it resends; the one that waits for a
//! tool result it contains; the one in which the same request failed; a copy of the one that asked for these results; otherwise a new conversation, with the messages of the request as its history.

use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use werkruf_contract::{Texts, Uuid};
use werkruf_llm::history_formats::HistoryFormat;
use werkruf_runtime::{AcceptedTurn, AnswerFormat, ClientChoice, ClientTool, Continuation, InboundMessage, Refusal, Subscription};

use super::client_events::TurnEvents;
use super::earlier_turn::{self, EarlierAnswer};
use super::inbound::inbound_message;
use super::input::Input;
use super::model::{self, CHANNEL};
use super::server_tools::server_tools;
use super::stop_on_leave::StopOnLeave;
use super::target::{Target, find_target};
use super::transcript::TranscriptDigest;
use super::unsupported::refused;
use super::{copies, media_urls, request_checks, resent};
use crate::api::chat::{CONVERSATION_ID, set_conversation_header};
use crate::api::error::ApiError;
use crate::api::policy::Authenticated;
use crate::api::{ApiState, body, context, replay};
use crate::config::{ModelApi, ModelConfig, OnDisconnect};

/// Response header: the model that produced the answer.
pub(crate) const MODEL_HEADER: HeaderName = HeaderName::from_static("x-werkruf-model");
/// How long a stream waits for the first event before it sends its headers. A turn that fails earlier gets an HTTP error status.
pub(crate) const FIRST_EVENT_WAIT: Duration = Duration::from_secs(3);
/// Larger than for the native API, because bodies contain pictures.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// Reads the body of a request to an OpenAI-compatible endpoint, and the fields of it that have one of these names. Before the body is
/// read the server must have a place for a turn, and before values are built the caller may not be over the limit of turns.
pub(crate) async fn read_fields(
    api: &ApiState,
    Authenticated(identity): &Authenticated,
    headers: &HeaderMap,
    body: body::RequestBody,
    names: &'static [&'static str],
) -> Result<(body::RawBody, Map<String, Value>), ApiError> {
    let (runtime, caller) = (&api.app.runtime, identity.caller()?);
    // A repeated request starts no turn; the runtime tells.
    let over_limit = if body::has_idempotency_key(headers) {
        None
    } else {
        runtime.check_place()?;
        runtime.check_turn_limits(&caller, CHANNEL).err()
    };
    let raw = body::bytes_up_to(body, BODY_LIMIT).await?;
    let fields = body::json_fields(&raw, names, |fields| match over_limit {
        // Results of tools may continue a turn; only the values tell.
        Some(refusal) if !fields.may_have_results() => Err(refusal.into()),
        Some(_) | None => Ok(()),
    })?;
    Ok((raw, fields))
}

/// A request to start a turn, from Chat Completions or from Responses.
#[derive(Clone)]
pub(crate) struct TurnRequest {
    /// Messages of Chat Completions or items of Responses.
    pub(crate) format: HistoryFormat,
    pub(crate) values: Vec<Value>,
    /// Instructions outside the messages.
    pub(crate) instructions: Option<String>,
    /// The conversation that the body names. [`start`] reads the header `X-Conversation-Id`, which takes precedence.
    pub(crate) conversation: Option<Uuid>,
    /// The newest turn of that conversation, where the request must follow it.
    pub(crate) after: Option<Uuid>,
    /// A history before the first message of that conversation.
    pub(crate) earlier: Vec<Value>,
    /// Digests of a request with results of the client's tools. [`start`] computes them.
    pub(crate) continues: Option<Continuation>,
    pub(crate) model: Option<String>,
    pub(crate) tools: Vec<ClientTool>,
    pub(crate) tool_choice: ClientChoice,
    pub(crate) parallel_tool_calls: Option<bool>,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_output_tokens: Option<u32>,
    /// The most calls of the server's tools.
    pub(crate) max_tool_calls: Option<u32>,
    /// Other model options, under their Chat Completions names.
    pub(crate) options: Map<String, Value>,
    /// The tools that the model may call: the client's, or the server's where the client has none. `None` for all of them.
    pub(crate) allowed_tools: Option<Vec<String>>,
    /// Whether a client that leaves before the end of the answer stops the turn.
    pub(crate) stops_on_leave: bool,
    /// Stored with the turn, for later requests about it.
    pub(crate) echo: Value,
    /// The body, whose digest is compared when an idempotency key is used again.
    pub(crate) raw: body::RawBody,
}

/// A turn that was started, or the earlier turn that the same request started.
pub(crate) struct StartedTurn {
    pub(crate) tenant_id: Uuid,
    pub(crate) conversation_id: Uuid,
    pub(crate) turn_id: Uuid,
    pub(crate) events: TurnEvents,
    /// The model that produces the answer.
    pub(crate) model: String,
    /// Texts in the language of the message, else of the user.
    pub(crate) texts: Texts,
    /// Whether this is an earlier turn whose answer is sent again.
    pub(crate) replayed: bool,
    /// The digest of the client's transcript, this request included.
    pub(crate) digest: TranscriptDigest,
    /// Whether only the text of the last step is the answer, and which step is the last is known at the end.
    pub(crate) last_step_only: bool,
    /// Stops the turn when the client leaves.
    pub(crate) stop: StopOnLeave,
}

impl StartedTurn {
    /// Sets the headers that every answer has.
    pub(crate) fn set_headers(&self, response: &mut Response) {
        set_conversation_header(response, Some(self.conversation_id));
        if let Ok(value) = HeaderValue::from_str(&self.model) {
            response.headers_mut().insert(MODEL_HEADER, value);
        }
        if self.replayed {
            replay::mark_replayed(response);
        }
    }
}

/// The message that a request would start a turn with.
pub(crate) async fn preview(
    api: &ApiState,
    Authenticated(identity): &Authenticated,
    headers: &HeaderMap,
    mut request: TurnRequest,
) -> Result<InboundMessage, ApiError> {
    let caller = identity.caller()?;
    let context = context::requested(api, headers, context::trace_id(headers, None, None)?)?;
    let (input, _) = read_input(api, &mut request)?;
    let named = conversation_header(headers)?.or(request.conversation);
    if let Some(id) = named {
        let stored = api.app.records().conversation(identity.tenant_id, id).await?;
        stored.filter(|row| row.user_id == caller.principal.user_id).ok_or_else(|| ApiError::not_found("conversation"))?;
    }
    let assistant = model::chosen(&api.app.runtime.setup(), &caller.principal, request.model.as_deref()).map(|found| found.name.clone());
    let target = named.map_or(Target::New, Target::Named);
    Ok(inbound_message(headers, &context, caller, assistant, &target, &input, request)?.0)
}

/// Checks and parses the messages of a request, and takes them out of it: they may be large.
fn read_input(api: &ApiState, request: &mut TurnRequest) -> Result<(Input, Vec<Value>), ApiError> {
    request_checks::check(request)?;
    let over_chat = matches!(&api.app.config.model, ModelConfig::Server(server) if server.api == ModelApi::Chat);
    if over_chat && media_urls::has_file_address(&request.values) {
        return Err(refused("file_url", "The model server takes no addresses of files; send the file as file_data."));
    }
    if over_chat && media_urls::has_picture_id(&request.values) {
        return Err(refused("file_id", "The model server takes no ids of pictures; send the picture as image_url."));
    }
    let mut new_call_id = || format!("call_{}", api.app.clock.new_id().simple());
    let values = std::mem::take(&mut request.values);
    let input = Input::read(request.format, &values, &mut new_call_id)
        .map_err(|fault| ApiError::invalid(format!("The message at {} {}.", fault.path, fault.message)))?;
    Ok((input, values))
}

/// Starts the turn.
pub(crate) async fn start(
    api: &ApiState,
    Authenticated(identity): &Authenticated,
    headers: &HeaderMap,
    mut request: TurnRequest,
) -> Result<StartedTurn, ApiError> {
    let caller = identity.caller()?;
    let context = context::requested(api, headers, context::trace_id(headers, None, None)?)?;
    let (input, values) = read_input(api, &mut request)?;
    request.continues = resent::continuation(&request, &values, &input, headers, &context, &caller);
    drop(values);
    let last_step_only = last_step_only(headers, &request);
    let named = conversation_header(headers)?.or(request.conversation);
    // A request without messages that names a conversation asks the assistant to continue it.
    if input.is_empty() && named.is_none() {
        return Err(ApiError::invalid("There is no message; send at least one."));
    }
    let setup = api.app.runtime.setup();
    let assistant = model::chosen(&setup, &caller.principal, request.model.as_deref());
    let model = model::model_name(assistant, &api.app.config.model);
    let written = || caller.principal.locale_of_text(&input.new_user_message().text);
    let texts = Texts::of(context.locale.clone().or_else(written).as_ref().unwrap_or(&caller.principal.locale));
    let assistant = assistant.map(|assistant| assistant.name.clone());
    // A request with an idempotency key may be sent again for the same answer.
    let has_key = body::has_idempotency_key(headers);
    let stops_on_leave = request.stops_on_leave && api.app.config.on_disconnect == OnDisconnect::Cancel && !has_key;
    let mut superseded = 0;
    let (accepted, digest) = loop {
        let target = match superseded {
            // Another request continued the conversation from the same message first. It may be the same request.
            0 | 1 => find_target(api, &caller, named, &input, request.continues.as_ref(), has_key).await?,
            _ => Target::New,
        };
        if let Target::AlreadyRun(turn_id) = target {
            let digest = input.digest(TranscriptDigest::default());
            return earlier_turn::joined(api, identity.tenant_id, turn_id, EarlierAnswer { model, texts, digest, last_step_only }).await;
        }
        let (message, digest) = inbound_message(headers, &context, caller.clone(), assistant.clone(), &target, &input, request.clone())?;
        let accepted = accept(api, message, stops_on_leave).await;
        if let Target::Copied { copy, .. } = &target
            && !matches!(accepted, Ok(Ok(_)))
        {
            copies::withdraw(&api.app, identity.tenant_id, copy.id).await;
        }
        match accepted? {
            Err(Refusal::Superseded) if named.is_none() => superseded += 1,
            accepted => break (accepted, digest),
        }
    };
    match accepted {
        Ok((conversation_id, turn_id, events, stop)) => Ok(StartedTurn {
            tenant_id: identity.tenant_id,
            conversation_id,
            turn_id,
            events: TurnEvents::Live(events),
            model,
            texts,
            replayed: false,
            digest,
            last_step_only,
            stop,
        }),
        Err(Refusal::Duplicate { turn_id, same_body }) => {
            let turn = replay::first_turn(api, identity.tenant_id, turn_id, same_body).await?;
            earlier_turn::replayed(api, &turn, EarlierAnswer { model, texts, digest, last_step_only }).await
        }
        Err(refusal) => Err(refusal.into()),
    }
}

type Accepted = (Uuid, Uuid, Subscription, StopOnLeave);

/// Gives the message to the runtime. A client that leaves meanwhile also stops its turn.
async fn accept(api: &ApiState, message: InboundMessage, stops_on_leave: bool) -> Result<Result<Accepted, Refusal>, ApiError> {
    let runtime = api.app.runtime.clone();
    let accepting = async move {
        let AcceptedTurn { conversation_id, turn_id, events, leave, .. } = runtime.chat(message).await?;
        let stop = if stops_on_leave { StopOnLeave::new(leave) } else { StopOnLeave::default() };
        Ok((conversation_id, turn_id, events, stop))
    };
    api.run_detached(accepting).await
}

/// Whether the client gets only the text of the last step, and steps may follow. Without tools of the server the first step is the last.
fn last_step_only(headers: &HeaderMap, request: &TurnRequest) -> bool {
    let has_one_step = request.tool_choice == ClientChoice::None || server_tools(headers).is_some_and(|names| names.is_empty());
    AnswerFormat::is_json(&request.options) && !has_one_step
}

/// The conversation that the header `X-Conversation-Id` names.
fn conversation_header(headers: &HeaderMap) -> Result<Option<Uuid>, ApiError> {
    let Some(value) = headers.get(CONVERSATION_ID) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| Uuid::parse_str(text.trim()).ok());
    id.map(Some).ok_or_else(|| ApiError::not_found("conversation"))
}
