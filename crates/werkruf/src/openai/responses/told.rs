//! A turn as it is stored, for this door: what it said, in order, and where it stands.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{AssistantSnapshot, ChatMessage, ClientCall, ErrorEvent, FinishReason, TurnError, TurnStatus, Usage, Uuid};
use werkruf_llm::HistoryCall;
use werkruf_runtime::ClientRequest;
use werkruf_store::{EventRow, MessageRow, StoreError, TurnRow};

use super::encode::{Ended, Said, standing_of};
use super::object::{Echo, Standing, State, Subject, response_id, turn_of};
use crate::api::{ApiError, approvals, lookup};
use crate::app::App;
use crate::identity::Identity;

/// What stands under `door` of a turn that came through this one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) responses: Echo,
    /// Taken back by its client; the rows stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleted: bool,
}

/// A turn that can be retrieved.
pub(crate) struct Told {
    pub(crate) subject: Subject,
    pub(crate) turn: TurnRow,
    pub(crate) said: Vec<Said>,
    /// The number of the last event in it.
    pub(crate) last: i64,
    brought: ClientRequest,
}

/// 404, with the words of OpenAI.
pub(crate) fn unknown(name: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("Response with id '{name}' not found."))
}

impl Told {
    /// A response by its name, if it is this person's, was to be stored and was not taken back.
    pub(crate) async fn find(app: &App, who: &Identity, name: &str) -> Result<Option<Self>, ApiError> {
        let Some(turn_id) = turn_of(name) else { return Ok(None) };
        let owner = who.caller()?.principal.user_id.clone();
        let Some(turn) = app.records().turn(who.tenant_id, turn_id).await?.filter(|turn| turn.user_id == owner) else { return Ok(None) };
        let Some(conversation_id) = turn.conversation_id else { return Ok(None) };
        let Some(brought) = app.clients().client_request(who.tenant_id, turn_id).await? else { return Ok(None) };
        let brought: ClientRequest = read(&brought)?;
        let Ok(Mark { responses: echo, deleted }) = Mark::deserialize(&brought.door) else { return Ok(None) };
        if deleted || !echo.store {
            return Ok(None);
        }
        Ok(Some(Self::load(app, turn, Subject { turn_id, conversation_id, echo }, brought).await?))
    }

    /// The response with this name, or 404.
    pub(crate) async fn get(app: &App, who: &Identity, name: &str) -> Result<Self, ApiError> {
        Self::find(app, who, name).await?.ok_or_else(|| unknown(name))
    }

    /// What the turn behind a subject has come to, whether or not others may ask for it.
    pub(crate) async fn of(app: &App, tenant_id: Uuid, subject: Subject) -> Result<Self, ApiError> {
        let turn = app.records().turn(tenant_id, subject.turn_id).await?.ok_or_else(|| unknown(&response_id(subject.turn_id)))?;
        let brought = app.clients().client_request(tenant_id, turn.id).await?.map(|text| read(&text)).transpose()?;
        Ok(Self::load(app, turn, subject, brought.unwrap_or_default()).await?)
    }

    async fn load(app: &App, turn: TurnRow, subject: Subject, brought: ClientRequest) -> Result<Self, StoreError> {
        let rows = lookup::all_events(app.records(), turn.tenant_id, subject.conversation_id, Some(turn.id), 0).await?;
        let last = rows.last().map_or(0, |row| row.seq);
        let complete = !turn.status.is_terminal() || rows.iter().any(|row| row.kind.ends_turn());
        let said = if complete { said(&rows)? } else { remembered(app, &turn, &brought).await? };
        Ok(Self { subject, turn, said, last, brought })
    }

    /// What the client brought.
    pub(crate) const fn client_request(&self) -> &ClientRequest {
        &self.brought
    }

    /// The error the turn ended with.
    pub(crate) fn failure(&self) -> Option<&ErrorEvent> {
        self.said.iter().find_map(|said| if let Said::Error(error) = said { Some(error) } else { None })
    }

    /// The finished items.
    pub(crate) fn output(&self) -> Vec<Value> {
        let mut output = Vec::new();
        for said in &self.said {
            match said {
                Said::Snapshot(snapshot) if !snapshot.content.is_empty() => {
                    output.push(self.subject.message(output.len(), Some(&snapshot.content)));
                }
                Said::Final(ended) => {
                    let text = &ended.message.content;
                    if ended.client_calls.is_empty() && !text.is_empty() {
                        output.push(self.subject.message(output.len(), Some(text)));
                    }
                    for call in &ended.client_calls {
                        output.push(self.subject.call(output.len(), call));
                    }
                }
                _ => {}
            }
        }
        output
    }

    /// The whole object, and the wish it waits for.
    pub(crate) async fn object(&self, app: &App) -> Result<(Value, Option<Uuid>), ApiError> {
        let ended = self.said.iter().find_map(|said| if let Said::Final(ended) = said { Some(ended) } else { None });
        let waits = self.turn.status == TurnStatus::AwaitingApproval;
        let awaited = if waits { approvals::awaited_by(app.approvals(), self.turn.tenant_id, self.turn.id).await? } else { None };
        let approval_id = awaited.map(|approval| approval.id);
        let standing = match (ended, self.failure(), self.turn.status) {
            (Some(ended), ..) => Standing::answered(ended.finish_reason, &ended.client_calls),
            (None, Some(error), _) => standing_of(error),
            (None, None, TurnStatus::Accepted) => Standing::Queued,
            (None, None, _) => Standing::InProgress,
        };
        let output = self.output();
        let usage = ended.map(|ended| &ended.usage);
        let object = self.subject.object(&State { standing, output: &output, usage, error: self.failure(), approval_id });
        Ok((object, approval_id))
    }
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Broken(error.to_string()))
}

/// Rows as this door tells them.
pub(crate) fn said(rows: &[EventRow]) -> Result<Vec<Said>, StoreError> {
    let read = |row: &EventRow| Said::read(row.kind, &row.data).map_err(|error| StoreError::Broken(error.to_string()));
    rows.iter().filter_map(|row| read(row).transpose()).collect()
}

/// The same from the messages, where the events of an ended turn are no longer kept.
async fn remembered(app: &App, turn: &TurnRow, brought: &ClientRequest) -> Result<Vec<Said>, StoreError> {
    let rows = lookup::messages_of_turn(app.records(), turn).await?;
    let mut said: Vec<Said> = Vec::new();
    for (at, row) in rows.iter().filter(|row| row.role == "assistant" && row.tool_calls.is_some()).enumerate() {
        let step = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        said.push(Said::Snapshot(AssistantSnapshot { content: row.content.clone(), step, turn_id: turn.id }));
    }
    if turn.status != TurnStatus::Completed {
        let error: TurnError = read(turn.error.as_deref().unwrap_or_default())?;
        let TurnError { kind, code, message, retry_after_ms } = error;
        said.push(Said::Error(ErrorEvent { kind, code, message, retry_after_ms, turn_id: turn.id }));
        return Ok(said);
    }
    let message = ChatMessage { role: "assistant".to_owned(), content: turn.message.clone().unwrap_or_default() };
    let client_calls = rows.last().map(|row| theirs(&rows, row, brought)).unwrap_or_default();
    let usage: Usage = app.turns().turn_usage(turn.tenant_id, turn.id).await?;
    let finish_reason = rows.last().and_then(|row| serde_json::from_str::<Cut>(&row.metadata).ok()).unwrap_or_default().finish_reason;
    said.push(Said::Final(Box::new(Ended { message, client_calls, finish_reason, usage })));
    Ok(said)
}

/// What an answer keeps of how it ended, where it was cut off.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cut {
    finish_reason: FinishReason,
}

/// The calls that were left to the client: those of the last message that asked, when nothing was said after it.
fn theirs(rows: &[MessageRow], last: &MessageRow, brought: &ClientRequest) -> Vec<ClientCall> {
    let spoke = last.role == "assistant" && last.tool_calls.is_none();
    let asked = rows.iter().rev().find_map(|row| row.tool_calls.as_deref()).and_then(HistoryCall::of_column);
    let theirs = |call: &HistoryCall| !spoke && brought.tools.iter().any(|tool| tool.name == call.name);
    let call = |call: HistoryCall| ClientCall { id: call.id, name: call.name, arguments: call.arguments };
    asked.unwrap_or_default().into_iter().filter(theirs).map(call).collect()
}
