//! Ends turns that no process will resume: all of a restored database, and those of a person who is erased. No process holds such a turn,
//! so the store applies the write in its own transaction, without a journal.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use werkruf_contract::{CallStatus, Clock, ErrorCode, EventType, Failure, Texts, TurnError};
use werkruf_llm::HistoryCall;
use werkruf_store::{
    CallRow, CloseReason, Fence, NewEvent, NewMessage, NewOutboxRow, Replacement, StoreError, TurnCloser, TurnRow, TurnWrite,
    UnfinishedTurn,
};

use super::close::Closing;
use super::leftover::{Leftover, history_id};
use crate::call::{CallOutcome, ModelResult, ResultLimit};
use crate::channel::{Inbound, OutboxBody, ReplyTo};
use crate::journal::{new_row, to_person};
use crate::stored::json as to_json;
use crate::turn::unanswered_end;

/// The language of a user is not known here: a restore has only the rows of the turn.
const LOCALE: &str = "en";
const OUTCOME_UNKNOWN: &str = "The request may have been carried out; check the result before you repeat it.";

/// The [`TurnCloser`] of the server and of its command line.
pub struct RecoveryCloser {
    clock: Clock,
}

impl RecoveryCloser {
    /// The clock makes the ids of the new messages.
    pub const fn new(clock: Clock) -> Self {
        Self { clock }
    }

    /// Adds a result message for every call of the turn that has none or only a placeholder. The assistant messages list the calls.
    fn add_results(
        &self,
        write: &mut TurnWrite,
        leftover: &Leftover,
        outcomes: &[CallOutcome],
        error: &TurnError,
    ) -> Result<(), StoreError> {
        let columns = leftover.history.iter().filter_map(|row| row.tool_calls.as_deref());
        let steps: Option<Vec<Vec<HistoryCall>>> = columns.map(HistoryCall::of_column).collect();
        let listed = steps.ok_or_else(|| StoreError::Broken("the calls of a message are unreadable".to_owned()))?.concat();
        let ids: Vec<Option<String>> = leftover.calls.iter().map(|row| history_id(row, &listed)).collect();
        for HistoryCall { id, name, .. } in listed {
            let result = leftover.result(&id).map(|row| row.status.as_deref());
            if !matches!(result, None | Some(Some("pending"))) {
                continue;
            }
            let place = ids.iter().position(|known| known.as_ref() == Some(&id));
            let outcome = place.and_then(|place| Some((outcomes.get(place)?, leftover.calls.get(place)?)));
            // A call without a row is one that the client was to run.
            let shown = outcome.map_or_else(
                || ModelResult::error(json!({"error": {"code": error.code, "message": error.message}}).to_string()),
                |(outcome, row)| outcome.for_model(row, ResultLimit::default()),
            );
            let metadata = outcome.and_then(|(outcome, row)| outcome.metadata(row, &shown));
            let ModelResult { content, status, .. } = shown;
            if result.is_some() {
                write.replacements.push(Replacement { tool_call_id: id, content, status, metadata });
            } else {
                write.messages.push(NewMessage { metadata, ..NewMessage::result(self.clock.new_id(), id, name, content, status) });
            }
        }
        Ok(())
    }

    /// What the person who wrote on a channel is told. The restore holds it until its release. Programs are not told: the configuration names
    /// them, and a restore has only the rows.
    fn answer(&self, turn: &TurnRow, text: String) -> Option<NewOutboxRow> {
        // An unreadable row must not keep a database from being restored.
        let inbound = Inbound::stored(turn.inbound.as_deref()).ok().flatten()?;
        if inbound.over_limit.is_some_and(|over| over.silent) {
            return None;
        }
        let ReplyTo { channel, account, address } = &inbound.reply_to;
        let row = new_row(&self.clock, to_person(channel, account, address, &turn.user_id), &OutboxBody::Text { text });
        Some(NewOutboxRow { conversation_id: turn.conversation_id, turn_id: Some(turn.id), ..row })
    }
}

impl TurnCloser for RecoveryCloser {
    fn close(&self, unfinished: UnfinishedTurn, fence: Fence, reason: CloseReason, now: Timestamp) -> Result<TurnWrite, StoreError> {
        let UnfinishedTurn { turn, calls, messages } = unfinished;
        let leftover = Leftover { turn, calls, history: messages, approvals: Vec::new() };
        let turn = &leftover.turn;
        let closing = match reason {
            CloseReason::Restored => Closing::Restored,
            CloseReason::Canceled => Closing::Canceled,
        };
        let error = closing.error(&Texts::of(LOCALE));
        let mut write = TurnWrite::new(self.clock.new_id(), fence, turn.conversation_id, turn.id, turn.user_id.clone(), now);
        let outcomes: Vec<CallOutcome> = leftover.calls.iter().map(|row| outcome(row, closing, &error, now)).collect();
        for (row, outcome) in leftover.calls.iter().zip(&outcomes).filter(|(row, _)| !row.status.is_terminal()) {
            write.ends.push(outcome.call_end(row));
            write.withdrawn.push(row.id);
            if row.status == CallStatus::Running {
                write.events.push(event(EventType::ToolFinished, &outcome.finished_event(row)));
            }
        }
        self.add_results(&mut write, &leftover, &outcomes, &error)?;
        if reason == CloseReason::Restored {
            write.outbox.extend(self.answer(turn, error.message.clone()));
        }
        let (change, error_event) = unanswered_end(turn.id, closing.turn_status(), turn.step, error);
        write.turn = Some(change);
        write.release_reservations = true;
        write.events.push(event(EventType::Error, &error_event));
        Ok(write)
    }
}

/// How a call of the turn ended, or ends now. An open `once` call may have been sent even if its row is only queued: the process that
/// continued after the backup was made may have sent it.
fn outcome(row: &CallRow, closing: Closing, error: &TurnError, now: Timestamp) -> CallOutcome {
    if row.status.is_terminal() {
        return CallOutcome::stored(row);
    }
    let failure = Failure::fatal(error.code.clone(), error.message.clone()).may_have_happened();
    let mut outcome = CallOutcome::failed(failure, closing.call_status(), row.effect, row.attempt, now);
    if let Err(failure) = &mut outcome.result
        && failure.is(ErrorCode::OutcomeUnknown)
    {
        OUTCOME_UNKNOWN.clone_into(&mut failure.message);
        // The error of the turn says why.
        failure.cause = None;
    }
    outcome
}

fn event(kind: EventType, payload: &impl Serialize) -> NewEvent {
    NewEvent { kind, data: to_json(payload) }
}

#[cfg(test)]
#[path = "closer_tests.rs"]
mod tests;
