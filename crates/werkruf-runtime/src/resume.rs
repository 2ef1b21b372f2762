//! Going on where another process stopped: calls it left behind first, then the model.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use werkruf_contract::{
    AssistantReset, CallStatus, Effect, EventType, Failure, Happened, Principal, ToolContext, ToolErrorDetail, ToolErrorType, TurnError,
};
use werkruf_store::{CallRetry, CallRow, MessageRow, StoreError, TurnRow, crash};

use crate::ask::Stop;
use crate::attempt::Run;
use crate::corridor::{Plan, Prepared, Walk, Walked};
use crate::dedupe::Flight;
use crate::ground::Draft;
use crate::history;
use crate::outcome::{Ended, Success};
use crate::turn::Turn;

/// Takeovers without a committed step in between, after which a turn is taken to kill whoever works on it.
const POISON: u32 = 3;

/// What an earlier process left of a turn.
pub(crate) struct Left {
    pub(crate) turn: TurnRow,
    pub(crate) calls: Vec<CallRow>,
    pub(crate) history: Vec<MessageRow>,
}

impl Turn {
    /// Goes on to the end.
    pub(crate) async fn resume(mut self, left: Left) {
        let turn_id = self.ground.turn_id;
        let ended = match self.catch_up(&left).await {
            Err(error) => Err(Stop::Store(error)),
            Ok(()) if left.turn.stalled >= POISON => Err(Stop::Failed(poison())),
            Ok(()) if left.turn.cancel_requested => Err(Stop::Canceled),
            Ok(()) => self.converse(&mut None).await,
        };
        if let Err(error) = self.end(ended, None).await {
            tracing::error!(%turn_id, %error, "the turn could not be brought to an end");
        }
    }

    /// Brings the last step to its end, so that the history is whole before the model is asked again.
    async fn catch_up(&mut self, left: &Left) -> Result<(), StoreError> {
        let ground = Arc::clone(&self.ground);
        self.progress.step = left.turn.step;
        self.progress.billed = ground.turns.turn_usage(ground.fence.tenant_id, ground.turn_id).await?;
        let ids = history_ids(&left.history, left);
        let answered: Vec<&str> = left.history.iter().filter_map(|row| row.tool_call_id.as_deref()).collect();
        let (mut open, mut done) = (Vec::new(), Vec::new());
        for call in left.calls.clone() {
            let id = ids.get(&(call.step, call.output_index)).cloned();
            if call.status.is_terminal() && id.as_deref().is_none_or(|id| answered.contains(&id)) {
                done.push(Walked { ended: Arc::new(ended_of(&call)), row: call, history_id: id });
            } else {
                open.push((call, id));
            }
        }
        self.progress.walked = done;
        let mut draft = ground.draft();
        if open.is_empty() {
            // A request may have been out, and some of its text shown.
            draft.write.usage.push(self.question().lost());
            draft.event(EventType::AssistantReset, &AssistantReset { step: self.progress.step + 1, turn_id: ground.turn_id });
            ground.commit(draft).await?;
            return Ok(());
        }
        let walk = Walk { ground: &ground, step: left.turn.step, state: &self.state, context: &self.context, earlier: &[] };
        let prepared = walk.resume(open, &mut draft).await?;
        ground.commit(draft).await?;
        crash::point("resumed");
        let (walked, outcomes) = walk.finish(prepared).await?;
        ground.commit(outcomes).await?;
        crash::point("caught_up");
        self.progress.walked.extend(walked);
        if let Some(conversation_id) = ground.conversation_id {
            let history = ground.turns.history(ground.fence.tenant_id, conversation_id).await?;
            self.messages = Arc::new(history::messages(&history));
        }
        Ok(())
    }
}

fn poison() -> TurnError {
    TurnError::new(ToolErrorType::Fatal, "poison", "This message made the server stop several times and is not tried again.")
}

#[derive(Deserialize)]
struct StoredId {
    id: String,
}

/// Under which id the history knows each call: the assistant messages of the turn, step by step.
fn history_ids(history: &[MessageRow], left: &Left) -> HashMap<(u32, u32), String> {
    let mut ids = HashMap::new();
    let steps = history.iter().filter(|row| row.turn_id == Some(left.turn.id)).filter_map(|row| row.tool_calls.as_deref());
    for (step, calls) in (1..).zip(steps) {
        let calls: Vec<StoredId> = serde_json::from_str(calls).unwrap_or_default();
        ids.extend((0..).zip(calls).map(|(at, call)| ((step, at), call.id)));
    }
    ids
}

/// A stored outcome, as the turn would hold it.
pub(crate) fn ended_of(call: &CallRow) -> Ended {
    let result = if call.status == CallStatus::Succeeded {
        Ok(Success::stored(call))
    } else {
        let detail: Option<ToolErrorDetail> = call.error_detail.as_deref().and_then(|text| serde_json::from_str(text).ok());
        Err(detail.map_or_else(|| Failure::fatal("interrupted", "The call was interrupted."), failure_of))
    };
    let finished_at = call.finished_at.unwrap_or(call.updated_at);
    Ended { status: call.status, result, attempt: call.attempt, cache_hit: call.cache_hit, finished_at }
}

fn failure_of(detail: ToolErrorDetail) -> Failure {
    Failure {
        kind: detail.kind,
        code: detail.code.unwrap_or_default().into(),
        message: detail.message,
        cause: detail.cause,
        retry_after: detail.retry_after_ms.and_then(|ms| u64::try_from(ms).ok()).map(std::time::Duration::from_millis),
        upstream_status: detail.upstream_status.and_then(|status| u16::try_from(status).ok()),
        endpoint: detail.endpoint,
        details: detail.details,
        happened: Happened::No,
    }
}

impl Walk<'_> {
    /// Calls that were under way: `once` ends as unknown, the rest is sent again with the same key. The draft makes it durable first.
    pub(crate) async fn resume(&self, open: Vec<(CallRow, Option<String>)>, draft: &mut Draft) -> Result<Vec<Prepared>, StoreError> {
        let ground = self.ground;
        let principal = ground.people.principal(ground.fence.tenant_id, ground.caller.principal.user_id.clone()).await?;
        let mut prepared = Vec::with_capacity(open.len());
        for (mut row, history_id) in open {
            let plan = match self.go_on(&mut row, principal.as_ref(), draft) {
                Ok(plan) => plan,
                Err(failure) => {
                    let attempt = row.attempt;
                    Plan::Ended(Box::new(Ended::failed(failure, CallStatus::Failed, row.effect, attempt, ground.clock.now())))
                }
            };
            prepared.push(Prepared { row, history_id, plan });
        }
        Ok(prepared)
    }

    fn go_on(&self, row: &mut CallRow, principal: Option<&Arc<Principal>>, draft: &mut Draft) -> Result<Plan, Failure> {
        let ground = self.ground;
        if row.status.is_terminal() {
            return Ok(Plan::Ended(Box::new(ended_of(row))));
        }
        if row.status == CallStatus::Running && row.effect == Effect::Once {
            return Err(interrupted().may_have_happened());
        }
        let entry = self.find(&row.tool_name)?;
        let grant = self.permit(entry, principal, row)?;
        self.approve(entry)?;
        let key = row.dedupe_key.clone().unwrap_or_else(|| row.id.to_string());
        let lead = match ground.in_flight.board(&key, row.id) {
            Flight::Joined(joined) => return Ok(Plan::Join(joined)),
            Flight::Lead(lead) => lead,
        };
        row.dedupe_of = None;
        if row.status == CallStatus::Running {
            let (now, started_at) = (ground.clock.now(), row.started_at.unwrap_or(row.created_at));
            let error = serde_json::to_string(&interrupted().into_detail(row.attempt)).unwrap_or_default();
            let (id, attempt) = (row.id, row.attempt);
            let retry = CallRetry { id, attempt, started_at, finished_at: now, status: CallStatus::Failed, error, next_started_at: now };
            draft.write.retries.push(retry);
            row.attempt += 1;
            row.started_at = Some(now);
        }
        let context = serde_json::from_str(&row.context).ok().and_then(|context| ToolContext::from_json(context).ok());
        let run = Run {
            entry: Arc::clone(entry),
            args: row.request.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            grant,
            principal: Arc::clone(principal.unwrap_or(&self.ground.caller.principal)),
            job_id: row.id,
            idempotency_key: row.idempotency_key.clone().unwrap_or_else(|| row.id.to_string()),
            context: Arc::new(context.unwrap_or_else(|| self.context.clone())),
            state: Arc::clone(self.state),
            cancel: ground.live.register(row.id),
            deadline: self.deadline(),
            attempt: row.attempt.max(1),
        };
        Ok(Plan::Run(Box::new(run), lead))
    }
}

fn interrupted() -> Failure {
    Failure::new(ToolErrorType::Retryable, "interrupted", "The server stopped while the call was under way.").nothing_happened()
}
