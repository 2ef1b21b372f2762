//! Ends a turn that will not be resumed. The history stays valid: every open call gets an outcome and a result message.
//! Independent of the database: stored rows come in, and the write that ends the turn goes out.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use werkruf_contract::{CallStatus, Clock, Effect, ErrorEvent, EventType, Failure, ToolErrorType, ToolFinished, TurnError, TurnStatus};

use crate::{CallEnd, CallRow, Fence, MessageRow, NewEvent, NewMessage, Replacement, StoreError, TurnChange, TurnRow, TurnWrite};

/// The owner of the lease during the transaction that ends the turn.
pub(crate) const OWNER: &str = "maintenance";

/// Status, code and message that a turn ends with.
pub(crate) struct Ending {
    pub(crate) status: TurnStatus,
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

/// After a restore it is unknown what happened since the backup.
pub(crate) const RESTORED: Ending = Ending {
    status: TurnStatus::Failed,
    code: "restored",
    message: "The server was restored from a backup while this was under way. Nothing is sent again by itself.",
};

pub(crate) const CANCELED: Ending = Ending { status: TurnStatus::Canceled, code: "canceled", message: "The turn was canceled." };

/// The stored rows of a turn that is to be ended.
pub(crate) struct Left<'a> {
    pub(crate) turn: &'a TurnRow,
    /// In the order of step and output index.
    pub(crate) calls: Vec<CallRow>,
    /// Messages of the turn that have a `seq`, in order.
    pub(crate) messages: Vec<MessageRow>,
}

impl Left<'_> {
    /// The write that ends the turn. Its `ends` are the calls that were open.
    pub(crate) fn ended(mut self, fence: Fence, ending: &Ending, clock: &Clock, now: Timestamp) -> Result<TurnWrite, StoreError> {
        let turn = self.turn;
        let mut write = TurnWrite::new(clock.new_id(), fence, turn.conversation_id, turn.id, turn.user_id.clone(), now);
        for call in self.calls.iter_mut().filter(|call| !call.status.is_terminal()) {
            let running = call.status == CallStatus::Running;
            write.ends.push(end_call(call, ending, now)?);
            write.withdrawn.push(call.id);
            if running {
                write.events.push(event(EventType::ToolFinished, &finished(call, now))?);
            }
        }
        if turn.conversation_id.is_some() {
            (write.messages, write.replacements) = results(&self.messages, &self.calls, ending, clock)?;
        }
        let error = TurnError::new(ToolErrorType::Fatal, ending.code, ending.message);
        write.turn = Some(TurnChange {
            status: ending.status,
            step: turn.step,
            error: Some((text(&error)?, ending.code.to_owned())),
            message: None,
            transcript_digest: None,
        });
        let error_event = ErrorEvent { kind: error.kind, code: error.code, message: error.message, retry_after_ms: None, turn_id: turn.id };
        write.events.push(event(EventType::Error, &error_event)?);
        Ok(write)
    }
}

/// A `once` call may have been sent: at the latest by the process that continued after the backup was made.
fn end_call(call: &mut CallRow, ending: &Ending, now: Timestamp) -> Result<CallEnd, StoreError> {
    let failure = if call.effect == Effect::Once {
        Failure::fatal("outcome_unknown", "The request may have been carried out; check the result before you repeat it.")
    } else {
        Failure::new(ToolErrorType::Fatal, ending.code, ending.message)
    };
    let detail = failure.into_detail(call.attempt);
    let status = if ending.status == TurnStatus::Canceled { CallStatus::Canceled } else { CallStatus::Failed };
    call.status = status;
    call.error_detail = Some(text(&detail)?);
    Ok(CallEnd {
        id: call.id,
        status,
        response: None,
        meta: None,
        error: Some(detail.message),
        error_type: Some(detail.kind.as_str().to_owned()),
        error_code: detail.code,
        error_detail: call.error_detail.clone(),
        cache_hit: false,
        finished_at: now,
    })
}

fn finished(call: &CallRow, now: Timestamp) -> ToolFinished {
    let start = call.started_at.unwrap_or(call.created_at);
    ToolFinished {
        tool: call.tool_name.clone(),
        job_id: call.id,
        call_id: call.call_id.clone(),
        status: call.status,
        took_ms: u64::try_from(now.as_millisecond() - start.as_millisecond()).unwrap_or(0),
        cache_hit: false,
    }
}

/// An entry of the `tool_calls` column of an assistant message.
#[derive(Deserialize)]
struct RequestedCall {
    id: String,
    #[serde(default)]
    name: String,
}

/// A result message for every call of the turn that has none or only a placeholder. The assistant messages list the calls.
fn results(
    messages: &[MessageRow],
    calls: &[CallRow],
    ending: &Ending,
    clock: &Clock,
) -> Result<(Vec<NewMessage>, Vec<Replacement>), StoreError> {
    // A call is listed under an id made from its row id, or under the id from the model provider.
    let by_own_id: HashMap<String, &CallRow> = calls.iter().map(|call| (format!("call_{}", call.id), call)).collect();
    let by_provider_id: HashMap<&str, &CallRow> = calls.iter().rev().filter_map(|call| Some((call.call_id.as_deref()?, call))).collect();
    let is_placeholder = |row: &MessageRow| row.status.as_deref() == Some("pending");
    let named =
        |pending: bool| messages.iter().filter(move |row| is_placeholder(row) == pending).filter_map(|row| row.tool_call_id.as_deref());
    let answered: Vec<&str> = named(false).collect();
    let placeholders: Vec<&str> = named(true).collect();
    let (mut missing, mut replaced) = (Vec::new(), Vec::new());
    for requested in messages.iter().filter_map(|row| row.tool_calls.as_deref()) {
        let requested: Vec<RequestedCall> = serde_json::from_str(requested).map_err(|error| StoreError::Broken(error.to_string()))?;
        for RequestedCall { id, name } in requested.into_iter().filter(|requested| !answered.contains(&requested.id.as_str())) {
            let call = by_own_id.get(&id).or_else(|| by_provider_id.get(id.as_str())).copied();
            let (content, status) = result_content(call, ending)?;
            if placeholders.contains(&id.as_str()) {
                replaced.push(Replacement { tool_call_id: id, content, status });
                continue;
            }
            missing.push(NewMessage {
                id: clock.new_id(),
                role: "tool",
                content,
                tool_calls: None,
                tool_call_id: Some(id),
                tool_name: Some(name),
                status: Some(status),
                metadata: None,
                tokens: None,
            });
        }
    }
    Ok((missing, replaced))
}

/// The content and status of a call's result message.
fn result_content(call: Option<&CallRow>, ending: &Ending) -> Result<(String, &'static str), StoreError> {
    match call {
        Some(CallRow { status: CallStatus::Succeeded, response: Some(response), .. }) => Ok((response.clone(), "success")),
        Some(CallRow { error_detail: Some(detail), .. }) => {
            let detail: werkruf_contract::ToolErrorDetail =
                serde_json::from_str(detail).map_err(|error| StoreError::Broken(error.to_string()))?;
            Ok((json!({"error": detail.for_readers()}).to_string(), "error"))
        }
        Some(_) | None => Ok((json!({"error": {"code": ending.code, "message": ending.message}}).to_string(), "error")),
    }
}

fn event(kind: EventType, data: &impl Serialize) -> Result<NewEvent, StoreError> {
    Ok(NewEvent { kind, data: text(data)? })
}

fn text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Broken(error.to_string()))
}
