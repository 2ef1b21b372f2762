//! Starts the turn of a request to the OpenAI-compatible APIs: converts the request into a message for the runtime.
//!
//! The conversation of a request is, in this order: the one it names; the one whose transcript it resends; the one that waits for a
//! tool result it contains; otherwise a new conversation, with the messages of the request as its history.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use werkruf_contract::{Texts, ToolContext, Uuid};
use werkruf_llm::history_formats::HistoryFormat;
use werkruf_runtime::{
    AcceptedTurn, AnswerFormat, Caller, ClientChoice, ClientRequest, ClientTool, InboundMessage, LiveEvent, Refusal, Subscription,
    complete_event,
};
use werkruf_store::TurnRow;

use super::client_events::TurnEvents;
use super::input::{Input, UserMessage};
use super::model::{self, CHANNEL};
use super::server_tools::server_tools;
use super::stop_on_leave::StopOnLeave;
use super::target::{Target, find_target};
use super::transcript::TranscriptDigest;
use super::unsupported::refused;
use super::{media_urls, request_checks};
use crate::api::chat::{CONVERSATION_ID, set_conversation_header};
use crate::api::error::ApiError;
use crate::api::policy::Authenticated;
use crate::api::{ApiState, body, context, lookup, replay};
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
    let input = read_input(api, &mut request)?;
    let named = conversation_header(headers)?.or(request.conversation);
    if let Some(id) = named {
        let stored = api.app.records().conversation(identity.tenant_id, id).await?;
        stored.filter(|row| row.user_id == caller.principal.user_id).ok_or_else(|| ApiError::not_found("conversation"))?;
    }
    let assistant = model::chosen(&api.app.runtime.setup(), &caller.principal, request.model.as_deref()).map(|found| found.name.clone());
    let target = named.map_or(Target::New, Target::Named);
    Ok(inbound_message(headers, &context, caller, assistant, target, &input, request)?.0)
}

/// Checks and parses the messages of a request, and takes them out of it: they may be large.
fn read_input(api: &ApiState, request: &mut TurnRequest) -> Result<Input, ApiError> {
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
    Input::read(request.format, &values, &mut new_call_id)
        .map_err(|fault| ApiError::invalid(format!("The message at {} {}.", fault.path, fault.message)))
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
    let input = read_input(api, &mut request)?;
    let last_step_only = last_step_only(headers, &request);
    let named = conversation_header(headers)?.or(request.conversation);
    // A request without messages that names a conversation asks the assistant to continue it.
    if input.is_empty() && named.is_none() {
        return Err(ApiError::invalid("There is no message; send at least one."));
    }
    let target = find_target(api, &caller, named, &input).await?;
    let setup = api.app.runtime.setup();
    let assistant = model::chosen(&setup, &caller.principal, request.model.as_deref());
    let model = model::model_name(assistant, &api.app.config.model);
    let written = || caller.principal.locale_of_text(&input.new_user_message().text);
    let texts = Texts::of(context.locale.clone().or_else(written).as_ref().unwrap_or(&caller.principal.locale));
    let assistant = assistant.map(|assistant| assistant.name.clone());
    if let Target::AlreadyRun(turn_id) = target {
        let turn = replay::first_turn(api, identity.tenant_id, turn_id, true).await?;
        let digest = input.digest(TranscriptDigest::default());
        return replayed(api, &turn, model, texts, digest, last_step_only).await;
    }
    // A request with an idempotency key may be sent again for the same answer.
    let stops_on_leave =
        request.stops_on_leave && api.app.config.on_disconnect == OnDisconnect::Cancel && !body::has_idempotency_key(headers);
    let is_named = matches!(target, Target::Named(_));
    let (message, digest) = inbound_message(headers, &context, caller.clone(), assistant.clone(), target, &input, request.clone())?;
    let mut accepted = accept(api, message, stops_on_leave).await?;
    if !is_named && matches!(accepted, Err(Refusal::Superseded)) {
        // Another request continued the conversation from the same message first: this request gets a conversation of its own.
        let (message, _) = inbound_message(headers, &context, caller, assistant, Target::New, &input, request)?;
        accepted = accept(api, message, stops_on_leave).await?;
    }
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
            replayed(api, &turn, model, texts, digest, last_step_only).await
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// An earlier turn whose answer is sent again.
async fn replayed(
    api: &ApiState,
    turn: &TurnRow,
    model: String,
    texts: Texts,
    digest: TranscriptDigest,
    last_step_only: bool,
) -> Result<StartedTurn, ApiError> {
    Ok(StartedTurn {
        tenant_id: turn.tenant_id,
        conversation_id: lookup::stream_of(turn),
        turn_id: turn.id,
        events: TurnEvents::Stored(stored_events(api, turn).await?.into()),
        model,
        texts,
        replayed: true,
        digest,
        last_step_only,
        stop: StopOnLeave::default(),
    })
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

fn inbound_message(
    headers: &HeaderMap,
    context: &ToolContext,
    caller: Caller,
    assistant: Option<String>,
    target: Target,
    input: &Input,
    request: TurnRequest,
) -> Result<(InboundMessage, TranscriptDigest), ApiError> {
    let after = match target {
        Target::Resumed(found) => Some(found.turn_id),
        Target::Named(_) => request.after,
        Target::AlreadyRun(_) | Target::New => None,
    };
    let (conversation_id, start_digest) = match target {
        // A client that sends only new messages is at the current end of the conversation, so its digest does not start empty.
        Target::Named(id) if !input.is_continued() => (Some(id), id.to_string()),
        Target::Named(id) => (Some(id), String::new()),
        Target::Resumed(found) => (Some(found.conversation_id), String::new()),
        Target::AlreadyRun(_) | Target::New => (None, String::new()),
    };
    let (history, UserMessage { text, parts }, results) = if conversation_id.is_some() {
        (request.earlier.clone(), input.new_user_message(), input.results())
    } else {
        // A new conversation waits for no results: those in the request belong to its history.
        let (history, message) = input.split_history();
        (history, message, Vec::new())
    };
    let digest = input.digest(start_digest);
    let idempotency = body::idempotency(headers, route(request.format), &request.raw)?;
    let held = Some(request.raw.held());
    let client_request = client_request(headers, input, history, digest.clone(), request);
    let inbound = InboundMessage {
        caller,
        conversation_id,
        message: text,
        assistant,
        channel: CHANNEL.to_owned(),
        locale: None,
        debug: false,
        idempotency,
        inbound: None,
        context: context.clone(),
        parts,
        client: Some(Arc::new(client_request)),
        results,
        after,
        held,
    };
    Ok((inbound, digest))
}

/// The route of a request in idempotency keys.
const fn route(format: HistoryFormat) -> &'static str {
    match format {
        HistoryFormat::Responses => "v1/responses",
        HistoryFormat::Openai | HistoryFormat::Langchain => "v1/chat/completions",
    }
}

fn client_request(headers: &HeaderMap, input: &Input, history: Vec<Value>, digest: String, mut request: TurnRequest) -> ClientRequest {
    let mut server_tools = server_tools(headers);
    match request.allowed_tools.take() {
        Some(allowed) if request.tools.is_empty() => {
            let names = server_tools.map(|names| names.into_iter().filter(|name| allowed.contains(name)).collect());
            server_tools = Some(names.unwrap_or(allowed));
        }
        Some(allowed) => request.tools.retain(|tool| allowed.contains(&tool.name)),
        None => {}
    }
    let outside = request.instructions.filter(|text| !text.trim().is_empty());
    let instructions: Vec<String> = outside.into_iter().chain(input.instructions.iter().cloned()).collect();
    ClientRequest {
        instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
        history,
        tools: request.tools,
        tool_choice: request.tool_choice,
        parallel_tool_calls: request.parallel_tool_calls,
        temperature: request.temperature,
        max_output_tokens: request.max_output_tokens,
        max_tool_calls: request.max_tool_calls,
        options: request.options,
        server_tools,
        transcript_digest: digest,
        endpoint: request.echo,
    }
}

/// The stored events of a turn.
pub(crate) async fn stored_events(api: &ApiState, turn: &TurnRow) -> Result<Vec<LiveEvent>, ApiError> {
    let records = api.app.records();
    let stream_id = lookup::stream_of(turn);
    let mut events = Vec::new();
    for row in lookup::all_events(records, turn.tenant_id, stream_id, Some(turn.id), 0).await? {
        let data = complete_event(records, turn.tenant_id, stream_id, &row).await?;
        let at = Some(row.created_at);
        events.push(LiveEvent { seq: Some(row.seq), kind: row.kind, turn_id: turn.id, data: Arc::from(data), at });
    }
    Ok(events)
}
