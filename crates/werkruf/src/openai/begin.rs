//! The one entry: what a client of these doors asks becomes a message for the runtime.
//!
//! Which conversation it belongs to: the one it names; else the one that waits for a result it brings; else the one it
//! resends; else a new one, with what it brings as its past.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use werkruf_contract::{Texts, Uuid};
use werkruf_llm::history_formats::HistoryFormat;
use werkruf_runtime::{AcceptedTurn, Caller, ClientChoice, ClientRequest, ClientTool, InboundMessage, LiveEvent, Refusal, complete_event};
use werkruf_store::{ResumePoint, TurnRow};

use super::heard::Events;
use super::input::{Input, Said};
use super::model::{self, CHANNEL};
use super::seen::Sight;
use crate::api::chat::{CONVERSATION_ID, name_conversation};
use crate::api::error::ApiError;
use crate::api::policy::Who;
use crate::api::{Door, body, context, lookup, replay};

/// The model that was really asked.
pub(crate) const REAL_MODEL: HeaderName = HeaderName::from_static("x-werkruf-model");
const SERVER_TOOLS: &str = "x-werkruf-tools";
/// Pictures travel in bodies.
/// Tools in a request, and calls in a message.
const MOST: usize = 1024;
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The body of a request to these doors.
pub(crate) async fn bytes(body: axum::body::Body) -> Result<Bytes, ApiError> {
    body::bytes_up_to(body, BODY_LIMIT).await
}

/// What a client asks, whatever the door.
#[derive(Clone)]
pub(crate) struct Asked {
    /// Messages of Chat Completions or items of Responses.
    pub(crate) format: HistoryFormat,
    pub(crate) values: Vec<Value>,
    /// Instructions beside the messages.
    pub(crate) instructions: Option<String>,
    /// Named by the body; the header `X-Conversation-Id` is read here.
    pub(crate) conversation: Option<Uuid>,
    pub(crate) model: Option<String>,
    pub(crate) tools: Vec<ClientTool>,
    pub(crate) tool_choice: ClientChoice,
    pub(crate) parallel_tool_calls: Option<bool>,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_output_tokens: Option<u32>,
    /// Other wishes for the model, under their Chat names.
    pub(crate) options: Map<String, Value>,
    /// To be found again with the turn.
    pub(crate) door: Value,
    /// For the idempotency key.
    pub(crate) raw: Bytes,
}

/// A turn that has begun, or the one that was begun under the same key before.
pub(crate) struct Begun {
    pub(crate) tenant_id: Uuid,
    pub(crate) conversation_id: Uuid,
    pub(crate) turn_id: Uuid,
    pub(crate) events: Events,
    /// The model that is really asked.
    pub(crate) model: String,
    /// The person's language.
    pub(crate) words: Texts,
    /// Whether this is an older turn told again.
    pub(crate) replayed: bool,
    /// What the client has sent and seen with this request.
    pub(crate) sight: Sight,
}

impl Begun {
    /// The headers every answer has.
    pub(crate) fn mark(&self, response: &mut Response) {
        name_conversation(response, Some(self.conversation_id));
        if let Ok(value) = HeaderValue::from_str(&self.model) {
            response.headers_mut().insert(REAL_MODEL, value);
        }
        if self.replayed {
            replay::mark(response);
        }
    }
}

/// Begins the turn.
pub(crate) async fn begin(door: &Door, Who(who): &Who, headers: &HeaderMap, asked: Asked) -> Result<Begun, ApiError> {
    let caller = who.caller()?;
    within_reason(&asked)?;
    let mut fresh = || format!("call_{}", door.app.clock.new_id().simple());
    let input = Input::read(asked.format, &asked.values, &mut fresh)
        .map_err(|fault| ApiError::invalid(format!("The message at {} {}.", fault.path, fault.message)))?;
    let named = named(headers)?.or(asked.conversation);
    // In a conversation that is named, nothing new is the wish to go on from where it stands.
    if input.is_empty() && named.is_none() {
        return Err(ApiError::invalid("There is no message; send at least one."));
    }
    let known = find(door, &caller, named, &input).await?;
    let setup = door.app.runtime.setup();
    let assistant = model::chosen(&setup, &caller.principal, asked.model.as_deref());
    let model = model::real(assistant, &door.app.config.model);
    let words = Texts::of(&caller.principal.locale);
    let assistant = assistant.map(|assistant| assistant.name.clone());
    if let Known::Sent(turn_id) = known {
        let turn = replay::first_turn(door, who.tenant_id, turn_id, true).await?;
        let (conversation_id, sight) = (lookup::stream_of(&turn), input.seen(Sight::default()));
        let events = Events::Stored(stored(door, &turn).await?.into());
        return Ok(Begun { tenant_id: who.tenant_id, conversation_id, turn_id, events, model, words, replayed: true, sight });
    }
    let (message, sight) = inbound(headers, caller.clone(), assistant.clone(), known, &input, asked.clone())?;
    let runtime = door.app.runtime.clone();
    let mut begun = door.owned(async move { runtime.chat(message).await }).await?;
    if matches!(begun, Err(Refusal::Superseded)) {
        // Somebody was faster from the same place: this one branches off into a conversation of its own.
        let (message, _) = inbound(headers, caller, assistant, Known::New, &input, asked)?;
        let runtime = door.app.runtime.clone();
        begun = door.owned(async move { runtime.chat(message).await }).await?;
    }
    match begun {
        Ok(AcceptedTurn { conversation_id, turn_id, events, .. }) => Ok(Begun {
            tenant_id: who.tenant_id,
            conversation_id,
            turn_id,
            events: Events::Live(events),
            model,
            words,
            replayed: false,
            sight,
        }),
        Err(Refusal::Duplicate { turn_id, same_body }) => {
            let turn = replay::first_turn(door, who.tenant_id, turn_id, same_body).await?;
            let conversation_id = lookup::stream_of(&turn);
            let events = Events::Stored(stored(door, &turn).await?.into());
            Ok(Begun { tenant_id: who.tenant_id, conversation_id, turn_id, events, model, words, replayed: true, sight })
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// The conversation the header names.
fn named(headers: &HeaderMap) -> Result<Option<Uuid>, ApiError> {
    let Some(value) = headers.get(CONVERSATION_ID) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| Uuid::parse_str(text.trim()).ok());
    id.map(Some).ok_or_else(|| ApiError::not_found("conversation"))
}

/// Where a request belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Its client said so.
    Named(Uuid),
    /// Its client resends it, or answers a call of it, and knows it up to this turn.
    Found(ResumePoint),
    /// The very same results came before, as this turn.
    Sent(Uuid),
    New,
}

async fn find(door: &Door, caller: &Caller, named: Option<Uuid>, input: &Input) -> Result<Known, ApiError> {
    if let Some(id) = named {
        return Ok(Known::Named(id));
    }
    let (clients, tenant_id, user_id) = (door.app.clients(), caller.principal.tenant_id, &caller.principal.user_id);
    let call_ids: Vec<String> = input.results().into_iter().map(|result| result.call_id).collect();
    let adds = !input.said().text.is_empty() || !input.said().parts.is_empty() || !call_ids.is_empty();
    // Its sight names a conversation better than the ids of its calls do: servers send call_0 again and again.
    if adds
        && let Some(seen) = input.seen_before()
        && let Some(found) = clients.conversation_by_digest(tenant_id, user_id.clone(), seen).await?
    {
        return Ok(Known::Found(found));
    }
    if call_ids.is_empty() {
        return Ok(Known::New);
    }
    if let Some(found) = clients.conversation_awaiting(tenant_id, user_id.clone(), call_ids).await? {
        return Ok(Known::Found(found));
    }
    // Results that were taken before: a client that lost the answer asks for it again.
    let sent = clients.turn_by_request_digest(tenant_id, user_id.clone(), input.seen(Sight::default())).await?;
    Ok(sent.map_or(Known::New, |turn| Known::Sent(turn.turn_id)))
}

/// Bodies are large for the sake of pictures, not of lists.
fn within_reason(asked: &Asked) -> Result<(), ApiError> {
    let many = |what: &str| Err(ApiError::invalid(format!("There are more than {MOST} {what}; send fewer.")));
    if asked.tools.len() > MOST {
        return many("tools");
    }
    let mut row = 0;
    for value in &asked.values {
        let calls = value["tool_calls"].as_array().map_or(0, Vec::len);
        row = if matches!(value["type"].as_str(), Some("function_call" | "custom_tool_call")) { row + 1 } else { 0 };
        if calls.max(row) > MOST {
            return many("calls in one message");
        }
    }
    Ok(())
}

fn inbound(
    headers: &HeaderMap,
    caller: Caller,
    assistant: Option<String>,
    known: Known,
    input: &Input,
    asked: Asked,
) -> Result<(InboundMessage, Sight), ApiError> {
    let after = match known {
        Known::Found(found) => Some(found.turn_id),
        Known::Named(_) | Known::Sent(_) | Known::New => None,
    };
    let (conversation_id, start) = match known {
        // A client that sends only what is new stands where the conversation stands, not at the beginning of one.
        Known::Named(id) if !input.is_continued() => (Some(id), id.to_string()),
        Known::Named(id) => (Some(id), String::new()),
        Known::Found(found) => (Some(found.conversation_id), String::new()),
        Known::Sent(_) | Known::New => (None, String::new()),
    };
    let (history, Said { text, parts }, results) = if conversation_id.is_some() {
        (Vec::new(), input.said(), input.results())
    } else {
        // Nothing waits for results in a conversation that begins: they are part of its past.
        let (history, said) = input.apart();
        (history, said, Vec::new())
    };
    let seen = input.seen(start);
    let idempotency = body::idempotency(headers, "", &asked.raw)?;
    let brought = brought(headers, input, history, seen.clone(), asked);
    let inbound = InboundMessage {
        caller,
        conversation_id,
        message: text,
        assistant,
        channel: CHANNEL.to_owned(),
        locale: None,
        debug: false,
        idempotency,
        trace_id: context::trace_id(headers, None, None)?,
        parts,
        brought: Some(Arc::new(brought)),
        results,
        after,
    };
    Ok((inbound, seen))
}

fn brought(headers: &HeaderMap, input: &Input, history: Vec<Value>, seen: String, asked: Asked) -> ClientRequest {
    let own = asked.instructions.filter(|text| !text.trim().is_empty());
    let instructions: Vec<String> = own.into_iter().chain(input.instructions.iter().cloned()).collect();
    ClientRequest {
        instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
        history,
        tools: asked.tools,
        tool_choice: asked.tool_choice,
        parallel_tool_calls: asked.parallel_tool_calls,
        temperature: asked.temperature,
        max_output_tokens: asked.max_output_tokens,
        options: asked.options,
        server_tools: server_tools(headers),
        seen,
        door: asked.door,
    }
}

/// `X-Werkruf-Tools`: `none`, or names between commas; nothing said is all.
fn server_tools(headers: &HeaderMap) -> Option<Vec<String>> {
    // What cannot be read names no tool.
    let text = headers.get(SERVER_TOOLS)?.to_str().unwrap_or_default();
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none"));
    Some(names.map(str::to_owned).collect())
}

/// The events of a turn that was told before.
pub(crate) async fn stored(door: &Door, turn: &TurnRow) -> Result<Vec<LiveEvent>, ApiError> {
    let records = door.app.records();
    let stream_id = lookup::stream_of(turn);
    let mut events = Vec::new();
    for row in lookup::all_events(records, turn.tenant_id, stream_id, Some(turn.id), 0).await? {
        let data = complete_event(records, turn.tenant_id, stream_id, &row).await?;
        events.push(LiveEvent { seq: Some(row.seq), kind: row.kind, turn_id: turn.id, data: Arc::from(data) });
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::server_tools;

    #[test]
    fn the_servers_tools_are_all_some_or_none() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-werkruf-tools", HeaderValue::from_static(value));
            server_tools(&headers)
        };
        assert_eq!(server_tools(&HeaderMap::new()), None);
        assert_eq!(of("none"), Some(vec![]));
        assert_eq!(of("a, b"), Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}
