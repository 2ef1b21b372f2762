//! Ends turns nobody will go on with. The history stays whole: every open call gets its outcome and its message.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use serde_json::json;
use werkruf_contract::{
    CallStatus, Clock, Effect, ErrorEvent, EventType, Failure, ToolErrorType, ToolFinished, TurnError, TurnStatus, Uuid,
};

use super::row::{self, all};
use super::text::{Id, Stamp};
use super::{takeover, turn_open, turn_write};
use crate::{CallEnd, CallRow, Held, MessageRow, NewEvent, NewMessage, Replacement, StoreError, TurnChange, TurnRow, TurnWrite};

/// Holds the lease for the length of one transaction.
const OWNER: &str = "keeping";

/// How the turns are to end.
pub(super) struct Ending {
    pub(super) status: TurnStatus,
    pub(super) code: &'static str,
    pub(super) message: &'static str,
}

/// After a restore nobody knows what happened since the backup.
pub(super) const RESTORED: Ending = Ending {
    status: TurnStatus::Failed,
    code: "restored",
    message: "The server was restored from a backup while this was under way. Nothing is sent again by itself.",
};

pub(super) const CANCELED: Ending = Ending { status: TurnStatus::Canceled, code: "canceled", message: "The turn was canceled." };

/// Holds everything a restored database would otherwise go on with.
pub(super) fn hold_all(c: &Connection, clock: &Clock, now: Timestamp) -> Result<Held, StoreError> {
    let stamp = Stamp::from(now);
    c.execute("UPDATE leases SET owner = NULL WHERE owner IS NOT NULL", [])?;
    let approvals = c.execute("UPDATE approvals SET status = 'canceled', decided_at = ?1 WHERE status = 'pending'", params![stamp])?;
    let outbox = c.execute(
        "UPDATE outbox SET held = 1, ambiguous = CASE status WHEN 'sending' THEN 1 ELSE ambiguous END, status = 'pending',
           next_at = NULL, updated_at = ?1 WHERE status IN ('pending', 'sending') AND held = 0",
        params![stamp],
    )?;
    let mut held = Held { approvals: changed(approvals), outbox: changed(outbox), ..Held::default() };
    // Those that had begun come first: what waits behind them gets its place after their results.
    let sql = format!("SELECT {} FROM turns WHERE finished_at IS NULL ORDER BY status = 'accepted', id", row::TURN);
    for turn in all(&mut c.prepare(&sql)?, [], row::turn)? {
        held.calls += end_turn(c, &turn, &RESTORED, clock, now)?;
        held.turns += 1;
    }
    Ok(held)
}

pub(super) fn changed(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

/// Ends one turn that nobody holds; how many of its calls were open.
pub(super) fn end_turn(c: &Connection, turn: &TurnRow, ending: &Ending, clock: &Clock, now: Timestamp) -> Result<u64, StoreError> {
    let fence = match turn.status {
        TurnStatus::Accepted => turn_open::start(c, turn.tenant_id, turn.id, OWNER, now)?,
        _ => takeover::take_over(c, turn.tenant_id, turn.id, OWNER.to_owned(), now)?,
    };
    let mut calls = calls_of(c, turn)?;
    let mut write = TurnWrite::new(fence, turn.conversation_id, turn.id, turn.user_id.clone(), now);
    for call in calls.iter_mut().filter(|call| !call.status.is_terminal()) {
        let running = call.status == CallStatus::Running;
        write.ends.push(end_call(call, ending, now)?);
        write.withdrawn.push(call.id);
        if running {
            write.events.push(event(EventType::ToolFinished, &finished(call, now))?);
        }
    }
    if let Some(conversation_id) = turn.conversation_id {
        (write.messages, write.replacements) = results(&messages_of(c, turn, conversation_id)?, &calls, ending, clock)?;
    }
    let error = TurnError::new(ToolErrorType::Fatal, ending.code, ending.message);
    write.turn = Some(TurnChange {
        status: ending.status,
        step: turn.step,
        error: Some((text(&error)?, ending.code.to_owned())),
        message: None,
        seen: None,
    });
    let told = ErrorEvent { kind: error.kind, code: error.code, message: error.message, retry_after_ms: None, turn_id: turn.id };
    write.events.push(event(EventType::Error, &told)?);
    let open = changed(write.ends.len());
    turn_write::write(c, &write)?;
    Ok(open)
}

fn calls_of(c: &Connection, turn: &TurnRow) -> Result<Vec<CallRow>, StoreError> {
    let sql = format!("SELECT {} FROM tool_calls WHERE tenant_id = ?1 AND turn_id = ?2 ORDER BY step, output_index", row::CALL);
    all(&mut *c.prepare_cached(&sql)?, params![Id::from(turn.tenant_id), Id::from(turn.id)], row::call)
}

fn messages_of(c: &Connection, turn: &TurnRow, conversation_id: Uuid) -> Result<Vec<MessageRow>, StoreError> {
    let sql = format!(
        "SELECT {} FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2 AND turn_id = ?3 AND seq IS NOT NULL ORDER BY seq",
        row::MESSAGE
    );
    all(&mut *c.prepare_cached(&sql)?, params![Id::from(turn.tenant_id), Id::from(conversation_id), Id::from(turn.id)], row::message)
}

/// A `once` call may have been sent, by the process that went on after the backup if by no other.
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

#[derive(Deserialize)]
struct Asked {
    id: String,
    #[serde(default)]
    name: String,
}

/// A message for every call of the turn that has none or only a placeholder; the assistant messages name them, step by step.
fn results(
    messages: &[MessageRow],
    calls: &[CallRow],
    ending: &Ending,
    clock: &Clock,
) -> Result<(Vec<NewMessage>, Vec<Replacement>), StoreError> {
    // Under our own spelling of its id, else under the wire's.
    let made: HashMap<String, &CallRow> = calls.iter().map(|call| (format!("call_{}", call.id), call)).collect();
    let wired: HashMap<&str, &CallRow> = calls.iter().rev().filter_map(|call| Some((call.call_id.as_deref()?, call))).collect();
    let waits = |row: &MessageRow| row.status.as_deref() == Some("pending");
    let named = |pending: bool| messages.iter().filter(move |row| waits(row) == pending).filter_map(|row| row.tool_call_id.as_deref());
    let answered: Vec<&str> = named(false).collect();
    let placeholders: Vec<&str> = named(true).collect();
    let (mut missing, mut replaced) = (Vec::new(), Vec::new());
    for asked in messages.iter().filter_map(|row| row.tool_calls.as_deref()) {
        let asked: Vec<Asked> = serde_json::from_str(asked).map_err(|error| StoreError::Broken(error.to_string()))?;
        for asked in asked.into_iter().filter(|asked| !answered.contains(&asked.id.as_str())) {
            let call = made.get(&asked.id).or_else(|| wired.get(asked.id.as_str())).copied();
            let (content, status) = told(call, ending)?;
            if placeholders.contains(&asked.id.as_str()) {
                replaced.push(Replacement { tool_call_id: asked.id, content, status });
                continue;
            }
            missing.push(NewMessage {
                id: clock.new_id(),
                role: "tool",
                content,
                tool_calls: None,
                tool_call_id: Some(asked.id),
                tool_name: Some(asked.name),
                status: Some(status),
                metadata: None,
                tokens: None,
            });
        }
    }
    Ok((missing, replaced))
}

/// What the model reads of a call.
fn told(call: Option<&CallRow>, ending: &Ending) -> Result<(String, &'static str), StoreError> {
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
