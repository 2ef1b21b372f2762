//! A stored turn as a response of the Responses API: its events in order and its current status.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{
    Annotation, AssistantSnapshot, ChatMessage, ClientCall, ErrorEvent, FinishReason, TurnError, TurnStatus, Usage, Uuid,
};
use werkruf_llm::HistoryCall;
use werkruf_runtime::ClientRequest;
use werkruf_store::{EventRow, MessageRow, RequestsOf, ResumePoint, StoreError, TurnRow};

use super::echo::RequestEcho;
use super::encode::{TurnEvent, status_of_error};
use super::object::{ItemStatus, ResponseBase, ResponseState, ResponseStatus, cut_short, response_id, turn_of};
use crate::api::{ApiError, approvals, lookup};
use crate::app::App;
use crate::identity::Identity;
use crate::openai::client_events::TurnAnswer;

/// What the Responses API stores with a turn, in the field `endpoint` of the client request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredRequest {
    pub(crate) responses: RequestEcho,
    /// Deleted by its client. The rows of the turn stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleted: bool,
}

/// A stored response with the events of its turn.
pub(crate) struct StoredResponse {
    pub(crate) base: ResponseBase,
    pub(crate) turn: TurnRow,
    pub(crate) events: Vec<TurnEvent>,
    /// The sequence number of the last stored event.
    pub(crate) last: i64,
    client_request: ClientRequest,
}

/// 404 with the message that OpenAI uses.
pub(crate) fn response_not_found(name: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("Response with id '{name}' not found."))
}

impl StoredResponse {
    /// Finds a response by its id. `None` if it belongs to another user, was sent with `store: false`, or was deleted.
    pub(crate) async fn find(app: &App, identity: &Identity, name: &str) -> Result<Option<Self>, ApiError> {
        let Some(turn_id) = turn_of(name) else { return Ok(None) };
        let owner = identity.caller()?.principal.user_id.clone();
        let Some(turn) = app.records().turn(identity.tenant_id, turn_id).await?.filter(|turn| turn.user_id == owner) else {
            return Ok(None);
        };
        let Some(conversation_id) = turn.conversation_id else { return Ok(None) };
        let Some(client_request) = app.clients().client_request(identity.tenant_id, turn_id).await? else { return Ok(None) };
        let client_request: ClientRequest = read(&client_request)?;
        let Ok(StoredRequest { responses: echo, deleted }) = StoredRequest::deserialize(&client_request.endpoint) else { return Ok(None) };
        if deleted || !echo.store {
            return Ok(None);
        }
        Ok(Some(Self::load(app, turn, ResponseBase { turn_id, conversation_id, echo }, client_request).await?))
    }

    /// Finds a response by its id, or fails with 404.
    pub(crate) async fn get(app: &App, identity: &Identity, name: &str) -> Result<Self, ApiError> {
        Self::find(app, identity, name).await?.ok_or_else(|| response_not_found(name))
    }

    /// Loads the stored response of a turn, also where `store: false` hides the response from later requests.
    pub(crate) async fn load_turn(app: &App, tenant_id: Uuid, base: ResponseBase) -> Result<Self, ApiError> {
        let turn = app.records().turn(tenant_id, base.turn_id).await?.ok_or_else(|| response_not_found(&response_id(base.turn_id)))?;
        let client_request = app.clients().client_request(tenant_id, turn.id).await?.map(|text| read(&text)).transpose()?;
        Ok(Self::load(app, turn, base, client_request.unwrap_or_default()).await?)
    }

    async fn load(app: &App, turn: TurnRow, base: ResponseBase, client_request: ClientRequest) -> Result<Self, StoreError> {
        let rows = lookup::all_events(app.streams(), turn.tenant_id, base.conversation_id, Some(turn.id), 0).await?;
        let last = rows.last().map_or(0, |row| row.seq);
        let complete = !turn.status.is_terminal() || rows.iter().any(|row| row.kind.ends_turn());
        let mut events = if complete { turn_events(&rows)? } else { events_from_messages(app, &turn, &client_request).await? };
        for event in &mut events {
            if let TurnEvent::Error(_, usage) = event {
                *usage = usage_of(app, turn.tenant_id, turn.id).await?;
            }
        }
        Ok(Self { base, turn, events, last, client_request })
    }

    /// The request of the client, as it was stored with the turn.
    pub(crate) const fn client_request(&self) -> &ClientRequest {
        &self.client_request
    }

    /// The calls that the client has to run.
    pub(crate) fn client_calls(&self) -> impl Iterator<Item = &ClientCall> {
        self.events.iter().flat_map(|event| match event {
            TurnEvent::Final(answer, _) => answer.client_calls.as_slice(),
            _ => &[],
        })
    }

    /// The error the turn ended with.
    pub(crate) fn failure(&self) -> Option<&ErrorEvent> {
        self.events.iter().find_map(|event| if let TurnEvent::Error(error, _) = event { Some(error) } else { None })
    }

    /// The finished output items.
    pub(crate) fn output(&self) -> Vec<Value> {
        let (mut output, last_step_only) = (Vec::new(), self.base.echo.asks_for_json());
        for event in &self.events {
            match event {
                TurnEvent::Snapshot(snapshot) if !snapshot.content.is_empty() && !last_step_only => {
                    let text = (snapshot.content.as_str(), snapshot.annotations.as_slice());
                    output.push(self.base.message(output.len(), Some(text), ItemStatus::of_step(snapshot)));
                }
                TurnEvent::Final(answer, _) => {
                    let text = &answer.message.content;
                    if answer.finish_reason == FinishReason::Refusal {
                        output.push(self.base.refusal(output.len(), Some(text)));
                    } else if (answer.client_calls.is_empty() || last_step_only) && !text.is_empty() {
                        let status = ResponseStatus::of_answer(answer.finish_reason, &answer.client_calls);
                        let text = (text.as_str(), answer.message.annotations.as_slice());
                        output.push(self.base.message(output.len(), Some(text), ItemStatus::of_last(status)));
                    }
                    for call in &answer.client_calls {
                        output.push(self.base.call(output.len(), call));
                    }
                }
                TurnEvent::Error(..) => cut_short(&mut output),
                _ => {}
            }
        }
        output
    }

    /// The response object, and the id of the approval that the turn waits for.
    pub(crate) async fn object(&self, app: &App) -> Result<(Value, Option<Uuid>), ApiError> {
        let answer = self.events.iter().find_map(|event| if let TurnEvent::Final(answer, _) = event { Some(answer) } else { None });
        let awaiting_approval = self.turn.status == TurnStatus::AwaitingApproval;
        let pending = if awaiting_approval {
            approvals::pending_approval_of_turn(app.approvals(), self.turn.tenant_id, self.turn.id).await?
        } else {
            None
        };
        let approval_id = pending.map(|approval| approval.id);
        let status = match (answer, self.failure(), self.turn.status) {
            (Some(answer), ..) => ResponseStatus::of_answer(answer.finish_reason, &answer.client_calls),
            (None, Some(error), _) => status_of_error(error),
            (None, None, TurnStatus::Accepted) => ResponseStatus::Queued,
            (None, None, _) => ResponseStatus::InProgress,
        };
        let output = self.output();
        let usage = self.events.iter().find_map(|event| match event {
            TurnEvent::Final(answer, _) => Some(&answer.usage),
            TurnEvent::Error(_, usage) => usage.as_ref(),
            _ => None,
        });
        let object = self.base.object(&ResponseState {
            status,
            output: &output,
            usage,
            error: self.failure(),
            ended_at: self.turn.finished_at,
            approval_id,
        });
        Ok((object, approval_id))
    }
}

/// The calls that a turn left to its client, as they were sent.
pub(crate) async fn client_calls_of_turn(app: &App, tenant_id: Uuid, turn: ResumePoint) -> Result<Vec<ClientCall>, StoreError> {
    let rows = lookup::all_events(app.streams(), tenant_id, turn.conversation_id, Some(turn.turn_id), 0).await?;
    let mut events = turn_events(&rows)?;
    if !rows.iter().any(|row| row.kind.ends_turn()) {
        let Some(row) = app.records().turn(tenant_id, turn.turn_id).await? else { return Ok(Vec::new()) };
        let request = app.clients().client_request(tenant_id, row.id).await?.map(|text| read(&text)).transpose()?;
        let ended = row.status.is_terminal();
        events = if ended { events_from_messages(app, &row, &request.unwrap_or_default()).await? } else { Vec::new() };
    }
    let of_event = |event| if let TurnEvent::Final(answer, _) = event { answer.client_calls } else { Vec::new() };
    Ok(events.into_iter().flat_map(of_event).collect())
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Broken(error.to_string()))
}

/// What a turn without an answer has used; `None` where no request was sent.
pub(crate) async fn usage_of(app: &App, tenant_id: Uuid, turn_id: Uuid) -> Result<Option<Usage>, StoreError> {
    let usage = app.store.turn_usage(tenant_id, turn_id, RequestsOf::Turn).await?;
    Ok(Some(usage).filter(|usage| usage.model_calls > 0))
}

/// The stored events that the Responses API exposes.
pub(crate) fn turn_events(rows: &[EventRow]) -> Result<Vec<TurnEvent>, StoreError> {
    let read =
        |row: &EventRow| TurnEvent::read(row.kind, &row.data, Some(row.created_at)).map_err(|error| StoreError::Broken(error.to_string()));
    rows.iter().filter_map(|row| read(row).transpose()).collect()
}

/// Rebuilds the events of an ended turn from its messages. Used when retention has deleted the event rows.
async fn events_from_messages(app: &App, turn: &TurnRow, client_request: &ClientRequest) -> Result<Vec<TurnEvent>, StoreError> {
    let rows = lookup::messages_of_turn(app.records(), turn).await?;
    let mut events: Vec<TurnEvent> = Vec::new();
    // A turn that was canceled has no answer, but may have the beginning of one.
    let is_step = |row: &&MessageRow| row.role == "assistant" && (row.tool_calls.is_some() || turn.status != TurnStatus::Completed);
    for (at, row) in rows.iter().filter(is_step).enumerate() {
        let step = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        let AnswerMetadata { annotations, canceled, .. } = AnswerMetadata::of(row);
        events.push(TurnEvent::Snapshot(AssistantSnapshot {
            annotations,
            canceled,
            ..AssistantSnapshot::text(row.content.clone(), step, turn.id)
        }));
    }
    if turn.status != TurnStatus::Completed {
        let error: TurnError = read(turn.error.as_deref().unwrap_or_default())?;
        let TurnError { kind, code, message, retry_after_ms, cause: _ } = error;
        events.push(TurnEvent::Error(ErrorEvent { kind, code, message, retry_after_ms, turn_id: turn.id }, None));
        return Ok(events);
    }
    let client_calls = rows.last().map(|row| client_calls_of(&rows, row, client_request)).unwrap_or_default();
    let usage: Usage = app.store.turn_usage(turn.tenant_id, turn.id, RequestsOf::Turn).await?;
    let AnswerMetadata { finish_reason, .. } = rows.last().map(AnswerMetadata::of).unwrap_or_default();
    // The message with the client's calls is followed by the places of their results.
    let last_text = rows.iter().rfind(|row| row.role == "assistant").map(AnswerMetadata::of).unwrap_or_default();
    let message = ChatMessage { annotations: last_text.annotations, ..ChatMessage::assistant(turn.message.clone().unwrap_or_default()) };
    events.push(TurnEvent::Final(Box::new(TurnAnswer { message, client_calls, finish_reason, usage }), turn.finished_at));
    Ok(events)
}

/// What the metadata of a message says about the answer. The finish reason is stored only where the answer was cut off.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnswerMetadata {
    finish_reason: FinishReason,
    annotations: Vec<Annotation>,
    /// The client left before the text was complete.
    canceled: bool,
}

impl AnswerMetadata {
    fn of(row: &MessageRow) -> Self {
        serde_json::from_str(&row.metadata).unwrap_or_default()
    }
}

/// The calls that the client has to run: those of the last message with calls, unless an answer follows it.
fn client_calls_of(rows: &[MessageRow], last: &MessageRow, client_request: &ClientRequest) -> Vec<ClientCall> {
    let answered = last.role == "assistant" && last.tool_calls.is_none();
    let calls = rows.iter().rev().find_map(|row| row.tool_calls.as_deref()).and_then(HistoryCall::of_column);
    let is_client_call = |call: &HistoryCall| !answered && client_request.tools.iter().any(|tool| tool.name == call.name);
    let call = |call: HistoryCall| ClientCall { id: call.id, name: call.name, arguments: call.arguments };
    calls.unwrap_or_default().into_iter().filter(is_client_call).map(call).collect()
}
