//! Going on where another process stopped: calls it left behind first, then the model.

use std::sync::Arc;

use werkruf_contract::{
    AssistantReset, CallStatus, ClientCall, Effect, EventType, Failure, Happened, Principal, Texts, ToolContext, ToolErrorDetail,
    ToolErrorType, TurnError, TurnStatus, Uuid,
};
use werkruf_llm::HistoryCall;
use werkruf_store::{ApprovalRow, CallRetry, CallRow, MessageRow, Replacement, StoreError, TurnRow, crash};

use crate::act::{expect_results, result};
use crate::approve::{Await, Word, park, word};
use crate::ask::Stop;
use crate::attempt::Run;
use crate::corridor::{Finished, Plan, Prepared, Walk, Walked, waits};
use crate::dedupe::Flight;
use crate::ground::{Draft, Ground};
use crate::history::{self, Past};
use crate::outcome::{Ended, Success};
use crate::provided::{break_off, is_provided};
use crate::record::{Seat, record};
use crate::registry::Entry;
use crate::take_in::UNANSWERED;
use crate::turn::{Said, Turn};

/// Takeovers without a committed step in between, after which a turn is taken to kill whoever works on it.
const POISON: u32 = 3;

/// What an earlier process left of a turn.
pub(crate) struct Left {
    pub(crate) turn: TurnRow,
    pub(crate) calls: Vec<CallRow>,
    pub(crate) history: Vec<MessageRow>,
    pub(crate) approvals: Vec<ApprovalRow>,
}

impl Left {
    /// Taken over so often without a finished step that it is taken to kill whoever works on it.
    pub(crate) const fn is_poison(&self) -> bool {
        self.turn.stalled >= POISON
    }

    /// The calls whose result the history has, and those that still need one.
    pub(crate) fn sorted(&self) -> (Vec<Walked>, Vec<(CallRow, Option<Seat>)>) {
        let asked = self.steps().concat();
        let stands = |id: &str| self.history.iter().find(|row| row.tool_call_id.as_deref() == Some(id));
        let (mut open, mut done) = (Vec::new(), Vec::new());
        for call in self.calls.iter().filter(|call| !is_provided(call)).cloned() {
            let id = id_of(&call, &asked);
            let result = id.as_deref().and_then(stands);
            let taken = result.is_some_and(|row| row.status.as_deref() == Some("pending"));
            let answered = id.is_none() || (result.is_some() && !taken);
            let seat = id.map(|id| Seat { id, taken });
            if call.status.is_terminal() && answered {
                done.push(Walked { ended: Arc::new(ended_of(&call)), row: call, seat });
            } else {
                open.push((call, seat));
            }
        }
        (done, open)
    }

    /// The client never hears of its calls: the history says so in place of their results.
    fn close_theirs(&self, ground: &Ground, draft: &mut Draft) {
        for call in self.theirs() {
            let stands = self.history.iter().find(|row| row.tool_call_id.as_deref() == Some(call.id.as_str()));
            match stands.map(|row| row.status.as_deref()) {
                Some(Some("pending")) => {
                    draft.write.replacements.push(Replacement { tool_call_id: call.id, content: UNANSWERED.to_owned(), status: "error" });
                }
                Some(_) => {}
                None => draft.write.messages.push(result(ground, &call, UNANSWERED.to_owned(), "error")),
            }
        }
    }

    /// The calls of the turn's answers, step by step, as the history has them.
    fn steps(&self) -> Vec<Vec<HistoryCall>> {
        let own = self.history.iter().filter(|row| row.turn_id == Some(self.turn.id)).filter_map(|row| row.tool_calls.as_deref());
        own.map(|column| HistoryCall::of_column(column).unwrap_or_default()).collect()
    }

    /// The calls of the last step that a client is to run: those the registry does not have.
    fn theirs(&self) -> Vec<ClientCall> {
        let Some(last) = self.steps().pop() else { return Vec::new() };
        let ours: Vec<String> = self.calls.iter().filter_map(|call| id_of(call, &last)).collect();
        last.into_iter()
            .filter(|call| !ours.contains(&call.id))
            .map(|call| ClientCall { id: call.id, name: call.name, arguments: call.arguments })
            .collect()
    }

    /// The number of the last step that anything was written of, also one whose answer broke off.
    fn last_step(&self) -> u32 {
        self.calls.iter().map(|call| call.step).fold(self.turn.step, u32::max)
    }

    /// Ends what the provider was running itself when the answer broke off; its step is not used again.
    fn close_provided(&self, ground: &Ground, draft: &mut Draft, status: CallStatus) {
        for row in self.calls.iter().filter(|row| is_provided(row) && !row.status.is_terminal()) {
            break_off(ground, draft, row, status);
        }
    }

    /// All the text of the turn so far, and that of its last answer.
    fn said(&self) -> (String, String) {
        let own = self.history.iter().filter(|row| row.turn_id == Some(self.turn.id) && row.role == "assistant");
        let texts: Vec<&str> = own.map(|row| row.content.as_str()).collect();
        (texts.concat(), texts.last().copied().unwrap_or_default().to_owned())
    }

    /// Whether a model request may have been out. The next one leaves before the last outcomes of a step are durable, so
    /// calls that look open tell nothing, unless one of them had not even begun.
    fn may_have_asked(&self) -> bool {
        // A step with calls for the client is a turn's last.
        self.theirs().is_empty() && self.sorted().1.iter().all(|(call, _)| call.status != CallStatus::Queued || call.dedupe_of.is_some())
    }

    /// Ends every open call without running anything: what is left to do when nobody may go on.
    pub(crate) fn close(&self, ground: &Ground, status: CallStatus) -> Draft {
        let mut draft = ground.draft();
        for (row, seat) in self.sorted().1 {
            let ended = if row.status.is_terminal() {
                ended_of(&row)
            } else {
                let failure = if row.status == CallStatus::Running { interrupted().may_have_happened() } else { interrupted() };
                Ended::failed(failure, status, row.effect, row.attempt, ground.clock.now()).in_words(&ground.words)
            };
            if self.approvals.iter().any(|approval| approval.call_id == row.id) {
                draft.write.withdrawn.push(row.id);
            }
            record(ground, &mut draft, &row, seat.as_ref(), &ended);
        }
        self.close_theirs(ground, &mut draft);
        self.close_provided(ground, &mut draft, status);
        draft
    }
}

impl Turn {
    /// Goes on to the end.
    pub(crate) async fn resume(mut self: Box<Self>, left: Left) {
        let turn_id = self.ground.turn_id;
        self.progress.step = left.last_step();
        self.progress.given_up = self.progress.step.saturating_sub(u32::try_from(left.steps().len()).unwrap_or(u32::MAX));
        if left.is_poison() || left.turn.cancel_requested {
            self.bill_lost(&left);
        }
        self.progress.said = left.said().0;
        let (mut draft, ended) = if left.is_poison() {
            (Some(left.close(&self.ground, CallStatus::Failed)), Err(Stop::Failed(poison(&self.ground.words))))
        } else if left.turn.cancel_requested {
            (Some(left.close(&self.ground, CallStatus::Canceled)), Err(Stop::Canceled))
        } else {
            (None, self.catch_up(&left).await)
        };
        let ended = match ended {
            Ok(Some(said)) => Ok(said),
            Ok(None) => self.converse(&mut draft).await,
            Err(stop) => Err(stop),
        };
        if let Err(error) = self.end(ended, draft).await {
            tracing::error!(%turn_id, %error, "the turn could not be brought to an end");
        }
    }

    /// What an earlier process may have asked without writing the bill.
    fn bill_lost(&mut self, left: &Left) {
        if left.may_have_asked() {
            let mut question = self.question();
            if let Some(room) = self.assistant.context_tokens {
                // Roughly what was sent of it.
                let messages = Arc::make_mut(&mut question.request.messages);
                let sizes: Vec<u64> = messages.iter().map(history::estimated).collect();
                messages.drain(..history::first_within(messages, &sizes, room));
            }
            let lost = question.lost();
            self.bill(lost);
        }
    }

    /// Brings the last step to its end, so that the history is whole before the model is asked again. What the turn has to say
    /// where the rest is for its client to do.
    async fn catch_up(&mut self, left: &Left) -> Result<Option<Said>, Stop> {
        let ground = Arc::clone(&self.ground);
        self.progress.billed = ground.turns.turn_usage(ground.fence.tenant_id, ground.turn_id).await?;
        let (done, open) = left.sorted();
        self.progress.walked = done;
        self.bill_lost(left);
        let mut draft = ground.draft();
        draft.write.usage.append(&mut self.progress.usage);
        left.close_provided(&ground, &mut draft, CallStatus::Failed);
        draft.write.given_up = Some(self.progress.step).filter(|step| *step > left.turn.step);
        let theirs = left.theirs();
        if open.is_empty() && !theirs.is_empty() {
            // Everything of ours is done; the client has only not heard of its part.
            ground.commit(draft).await?;
            return Ok(Some(Said { text: left.said().1, calls: theirs, ..Said::default() }));
        }
        if open.is_empty() {
            // Some of the lost request's text may have been shown.
            let step = self.progress.step.max(left.turn.step + 1);
            draft.event(EventType::AssistantReset, &AssistantReset { step, turn_id: ground.turn_id });
            ground.commit(draft).await?;
            return Ok(None);
        }
        let walk =
            Walk { ground: &ground, step: left.turn.step, state: &self.state, context: &self.context, earlier: &self.progress.walked };
        let prepared = walk.resume(left, open, &mut draft).await?;
        ground.commit(draft).await?;
        crash::point("resumed");
        let Finished { walked, parked, draft: mut outcomes, state } = walk.finish(prepared).await?;
        let stands = |call: &&ClientCall| left.history.iter().any(|row| row.tool_call_id.as_deref() == Some(call.id.as_str()));
        let missing: Vec<ClientCall> = theirs.iter().filter(|call| !stands(call)).cloned().collect();
        expect_results(&ground, &mut outcomes, &missing);
        if !parked.is_empty() {
            park(&ground, outcomes, left.turn.step, parked, Some(&self.progress.billed)).await?;
            return Err(Stop::Waiting);
        }
        ground.commit(outcomes).await?;
        crash::point("caught_up");
        if let Some(state) = state {
            self.state = Arc::new(state);
        }
        self.progress.walked.extend(walked);
        if !theirs.is_empty() {
            return Ok(Some(Said { text: left.said().1, calls: theirs, ..Said::default() }));
        }
        if let Some(conversation_id) = ground.conversation_id {
            let mut history = self.house.whole_history(ground.fence.tenant_id, conversation_id).await?;
            history::own_last(&mut history, ground.turn_id);
            let past = Past::of(&history);
            (self.messages, self.origins) = (Arc::new(past.messages), Some(past.origins));
        }
        Ok(None)
    }
}

pub(crate) fn poison(words: &Texts) -> TurnError {
    TurnError::new(ToolErrorType::Fatal, "poison", words.text("error-poison", &[]))
}

/// Under which id the history knows a call: our own spelling, else the wire's.
fn id_of(call: &CallRow, step: &[HistoryCall]) -> Option<String> {
    let known = |id: &str| step.iter().any(|stored| stored.id == id);
    let made = format!("call_{}", call.id);
    if known(&made) { Some(made) } else { call.call_id.clone().filter(|id| known(id)) }
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
    pub(crate) async fn resume(
        &self,
        left: &Left,
        open: Vec<(CallRow, Option<Seat>)>,
        draft: &mut Draft,
    ) -> Result<Vec<Prepared>, StoreError> {
        let ground = self.ground;
        let principal = ground.people.principal(ground.fence.tenant_id, ground.caller.principal.user_id.clone()).await?;
        let mut prepared = Vec::with_capacity(open.len());
        for (mut row, seat) in open {
            let heard = seat.as_ref().is_some_and(|seat| seat.taken) || left.turn.status == TurnStatus::AwaitingApproval;
            let approval = left.approvals.iter().find(|approval| approval.call_id == row.id);
            let asked = Asked { approval, heard };
            let plan = match self.go_on(&mut row, principal.as_ref(), &prepared, asked, draft) {
                Ok(plan) => plan,
                Err(failure) => {
                    let attempt = row.attempt;
                    let ended = Ended::failed(failure, CallStatus::Failed, row.effect, attempt, ground.clock.now());
                    Plan::Ended(Box::new(ended.in_words(&ground.words)))
                }
            };
            prepared.push(Prepared { row, seat, plan });
        }
        Ok(prepared)
    }

    fn go_on(
        &self,
        row: &mut CallRow,
        principal: Option<&Arc<Principal>>,
        siblings: &[Prepared],
        asked: Asked<'_>,
        draft: &mut Draft,
    ) -> Result<Plan, Failure> {
        let ground = self.ground;
        if row.status.is_terminal() {
            return Ok(Plan::Ended(Box::new(ended_of(row))));
        }
        if row.status == CallStatus::Running && row.effect == Effect::Once {
            return Err(interrupted().may_have_happened());
        }
        if let Some(ended) = self.twins_outcome(row, siblings) {
            return Ok(Plan::Ended(Box::new(ended)));
        }
        if row.dedupe_of.is_some_and(|twin| waits(siblings, twin)) {
            return Ok(Plan::Await(Box::new(Await::beside())));
        }
        let beside = |id: Uuid| siblings.iter().any(|call| call.row.id == id);
        if row.effect == Effect::Once && row.dedupe_of.is_some_and(|twin| !beside(twin)) {
            // It waited for a call of another turn, which may have been carried out.
            return Err(interrupted().may_have_happened());
        }
        let entry = self.find(&row.tool_name)?;
        let grant = self.permit(entry, principal, row)?;
        let key = row.dedupe_key.clone().unwrap_or_else(|| row.id.to_string());
        let lead = match ground.in_flight.board(&key, row.id) {
            // Any other holder may be a repeated request, which leaves without an outcome.
            Flight::Joined(joined) if !beside(joined.leader) => ground.in_flight.lead(&key, row.id),
            Flight::Joined(joined) => return Ok(Plan::Join(joined)),
            Flight::Lead(lead) => lead,
        };
        row.dedupe_of = None;
        if row.status == CallStatus::Queued
            && let Some(plan) = self.stands_still(row, entry, asked, draft)?
        {
            return Ok(plan);
        }
        if row.status == CallStatus::Running {
            let (now, started_at) = (ground.clock.now(), row.started_at.unwrap_or(row.created_at));
            let mut failure = interrupted();
            failure.message = ground.words.text("call-interrupted", &[]);
            let error = serde_json::to_string(&failure.into_detail(row.attempt)).unwrap_or_default();
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

    /// What a person's word means for a call that has not begun; `None` where it may run.
    fn stands_still(&self, row: &CallRow, entry: &Entry, asked: Asked<'_>, draft: &mut Draft) -> Result<Option<Plan>, Failure> {
        let awaited = |approval_id, announced| {
            Ok(Some(Plan::Await(Box::new(Await { approval_id: Some(approval_id), wish: None, announced, lead: None }))))
        };
        match asked.approval.map(|approval| (approval.id, word(approval, row))) {
            Some((_, Word::Given)) => Ok(None),
            Some((id, Word::Awaited)) => awaited(id, asked.heard),
            Some((_, Word::Withdrawn)) => Ok(Some(Plan::Ended(Box::new(self.never_sent())))),
            Some((_, Word::Refused(failure))) => Err(failure),
            None => match self.approvers(entry) {
                None => Ok(None),
                // Asked for since: the call was stored when nobody's word was needed.
                Some(roles) => {
                    let wish = self.wish(row, roles);
                    let id = wish.id;
                    draft.write.approvals.push(wish);
                    awaited(id, false)
                }
            },
        }
    }

    /// A call that waited for the same call beside it takes its outcome: to run now would be a second time.
    fn twins_outcome(&self, row: &CallRow, siblings: &[Prepared]) -> Option<Ended> {
        let (twin, now) = (row.dedupe_of?, self.ground.clock.now());
        let earlier = self.earlier.iter().find(|call| call.row.id == twin).map(|call| call.ended.shared(now));
        earlier.or_else(|| {
            siblings.iter().filter(|call| call.row.id == twin).find_map(|call| match &call.plan {
                Plan::Ended(ended) => Some(ended.shared(now)),
                Plan::Join(_) | Plan::Await(_) | Plan::Run(..) => None,
            })
        })
    }
}

/// What is known of the word on a call.
#[derive(Clone, Copy)]
struct Asked<'a> {
    approval: Option<&'a ApprovalRow>,
    /// ClientRequests know that it waits.
    heard: bool,
}

fn interrupted() -> Failure {
    Failure::new(ToolErrorType::Retryable, "interrupted", "").nothing_happened()
}
