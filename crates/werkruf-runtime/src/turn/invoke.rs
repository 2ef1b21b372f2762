//! A direct call of one tool, or the retry of a call: the same pipeline, in a turn of its own. Commits A and B are one, and so are C and D.

use std::sync::Arc;

use tokio::sync::oneshot;
use werkruf_contract::{
    ApprovalStatus, CallStatus, ChatMessage, ErrorCode, EventType, FinishReason, Progress, State, ToolContext, TurnError, TurnStatus,
    Usage, Uuid,
};
use werkruf_store::{
    ApprovalFilter, CallRow, ConversationRef, NewEvent, OpenTurn, Opened, Page, StoreError, TurnChange, TurnKind, TurnRow,
};

use super::accept::{inbox_entry, refuse_known};
use super::end::fail;
use crate::budgets::TurnTokens;
use crate::call::{
    Arguments, CallBatch, CallOutcome, CallRequest, FinishedCall, PreparedCall, TurnScope, apply_outcome, approver_rows, await_approvals,
    tool_started,
};
use crate::engine::{Engine, Registration};
use crate::journal::CommitPoint;
use crate::lease::{POLL, QueuePlace};
use crate::request::{Caller, Idempotency, Invoke, InvokeOutcome, InvokeResult, Refusal, StartedCall};
use crate::stored::{StoredFinal, is_provider_run, json, output_of};
use crate::stream::LiveEvent;
use crate::taint::Taint;
use crate::timer;
use crate::trace::TracedTurn;

/// A call that does not come from a chat.
#[derive(Clone)]
struct DirectCall {
    caller: Caller,
    kind: TurnKind,
    conversation_id: Option<Uuid>,
    context: ToolContext,
    request: CallRequest,
    idempotency: Option<Idempotency>,
    /// The assistant of the turn whose call is retried; empty for a first call.
    assistant: String,
    observer: Option<Arc<dyn Progress>>,
}

/// Calls a tool and waits for its outcome. A caller that leaves does not cancel the call.
pub(crate) async fn invoke(engine: &Arc<Engine>, invoke: Invoke) -> Result<InvokeResult, Refusal> {
    let started = start_call(engine, invoke).await?;
    let job_id = started.job_id;
    Ok(InvokeResult { job_id, outcome: started.outcome().await? })
}

/// Calls a tool. When this resolves, the call is durable and runs.
pub(crate) async fn start_call(engine: &Arc<Engine>, invoke: Invoke) -> Result<StartedCall, Refusal> {
    if engine.setup().registry.find_for(invoke.caller.principal.tenant(), &invoke.tool).is_none() {
        return Err(Refusal::UnknownTool(invoke.tool));
    }
    if let Some(key) = &invoke.idempotency {
        let entry = inbox_entry(&invoke.caller, key, engine.store.clock.now());
        refuse_known(engine, invoke.caller.principal.tenant_id, entry).await?;
    }
    engine.admit_call(&invoke.caller).await?;
    let mut context = invoke.context;
    invoke.caller.pins.apply(&mut context)?;
    let direct = DirectCall {
        caller: invoke.caller,
        kind: TurnKind::Invoke,
        conversation_id: invoke.conversation_id,
        context,
        request: CallRequest::new(engine.store.clock.new_id(), invoke.tool, Arguments::Given(invoke.input)),
        idempotency: invoke.idempotency,
        assistant: String::new(),
        observer: invoke.observer,
    };
    // Boxed: this future is large.
    Box::pin(run(engine, direct)).await
}

/// Waits until a turn has ended or waits for an approval; false if it still runs after the time that a turn may take, or does not exist.
pub(crate) async fn settled(engine: &Engine, tenant_id: Uuid, turn_id: Uuid) -> Result<bool, StoreError> {
    let (mut wakeups, patience) = (engine.wakeup.listen(), timer::after(engine.limits.turn()));
    loop {
        // Before the row is read: what ends the turn in between is noticed.
        let running = engine.running.get(turn_id);
        let Some(turn) = engine.store.records.turn(tenant_id, turn_id).await? else { return Ok(false) };
        // Between a decision and the work that it starts, the turn still says that it waits.
        let waits = turn.status == TurnStatus::AwaitingApproval && running.is_none() && has_pending_approval(engine, &turn).await?;
        if turn.status.is_terminal() || waits {
            return Ok(true);
        }
        if timer::left(patience).is_zero() || (running.is_none() && engine.is_draining()) {
            return Ok(false);
        }
        match running {
            Some(running) => drop(tokio::time::timeout(POLL, running.over()).await),
            None => wakeups.within(POLL).await,
        }
    }
}

async fn has_pending_approval(engine: &Engine, turn: &TurnRow) -> Result<bool, StoreError> {
    let filter = ApprovalFilter { status: Some(ApprovalStatus::Pending), turn_id: Some(turn.id), roles: None };
    let page = Page { limit: 1, ..Page::default() };
    Ok(!engine.store.approvals.approvals(turn.tenant_id, filter, page).await?.is_empty())
}

/// Runs a failed call again, for the user it was made for. Returns the new call's id.
pub(crate) async fn retry_call(engine: &Arc<Engine>, caller: &Caller, call_id: Uuid, force: bool) -> Result<Uuid, Refusal> {
    engine.admit_call(caller).await?;
    let (store, tenant_id) = (&engine.store, caller.principal.tenant_id);
    let call = store.records.call(tenant_id, call_id).await?.ok_or(Refusal::UnknownCall)?;
    let unknown = call.has_code(ErrorCode::OutcomeUnknown);
    check_retryable(&call, unknown, force)?;
    let turn = store.records.turn(tenant_id, call.turn_id).await?.ok_or(Refusal::UnknownCall)?;
    let principal = store.people.principal(tenant_id, turn.user_id).await?.ok_or(Refusal::UnknownCall)?;
    let caller = Caller { principal, admin: false, ..caller.clone() };
    let arguments = match (call.request.as_deref().and_then(|text| serde_json::from_str(text).ok()), &call.raw_arguments) {
        (Some(request), _) => Arguments::Given(request),
        (None, Some(raw)) => Arguments::Raw(raw.clone()),
        (None, None) => return Err(not_retryable("the call's arguments are no longer stored")),
    };
    let mut context = serde_json::from_str(&call.context)
        .ok()
        .and_then(|context| ToolContext::from_json(context).ok())
        // Erased together with the user it was made for.
        .ok_or_else(|| not_retryable("the call's context is no longer stored"))?;
    caller.pins.apply(&mut context)?;
    let direct = DirectCall {
        caller,
        kind: TurnKind::Retry,
        conversation_id: call.conversation_id,
        context,
        request: CallRequest {
            retry_of: Some(call.id),
            // The other side may know the outcome: the same key lets it recognise the call.
            idempotency_key: call.idempotency_key.clone().filter(|_| unknown),
            // The arguments are still those that the model chose after it had read this.
            taint: call.taint.clone(),
            ..CallRequest::new(store.clock.new_id(), call.tool_name.clone(), arguments)
        },
        idempotency: None,
        assistant: turn.assistant,
        observer: None,
    };
    Ok(Box::pin(run(engine, direct)).await?.job_id)
}

fn not_retryable(message: impl Into<String>) -> Refusal {
    Refusal::Conflict { code: "not_retryable", message: message.into() }
}

fn check_retryable(call: &CallRow, unknown: bool, force: bool) -> Result<(), Refusal> {
    if !matches!(call.status, CallStatus::Failed | CallStatus::Timeout | CallStatus::Canceled) {
        let message = format!("the call is {}; only a failed, timed out or canceled one can be tried again", call.status);
        return Err(not_retryable(message));
    }
    if is_provider_run(call) {
        return Err(not_retryable("the model's provider made this call, not this server; ask the model again"));
    }
    if unknown && !force {
        let message = "the call may have been carried out; send {\"force\": true} if you have checked that it was not".to_owned();
        return Err(Refusal::Conflict { code: ErrorCode::OutcomeUnknown.as_str(), message });
    }
    Ok(())
}

/// Waits for the conversation, decides, makes the turn and its call durable in one commit, and lets the call run.
async fn run(engine: &Arc<Engine>, direct: DirectCall) -> Result<StartedCall, Refusal> {
    let turn_id = engine.store.clock.new_id();
    // Before the queue, so that a stranger learns nothing by waiting in it. Again after it, because the state changes meanwhile.
    conversation_state(engine, &direct).await?;
    let mut place = engine.queues.enter(direct.conversation_id.unwrap_or(turn_id));
    place.reached().await;
    let (mut wakeups, patience) = (engine.wakeup.listen(), timer::after(engine.limits.turn()));
    let (turn, scope, prepared, job_id) = loop {
        let state = conversation_state(engine, &direct).await?;
        let tenant_id = direct.caller.principal.tenant_id;
        let registration = engine.register(tenant_id, turn_id).ok_or(Refusal::Busy { retry_after_ms: 1000 })?;
        let running = Arc::clone(registration.running());
        let mut scope = engine.scope(engine.setup(), direct.caller.clone(), turn_id, direct.conversation_id, running, None);
        scope.tokens = Arc::new(TurnTokens::new(direct.context.budget_tokens));
        scope.spender.assistant = Some(direct.assistant.clone()).filter(|name| !name.is_empty());
        let (conversation_id, assistant) = (direct.conversation_id, direct.assistant.as_str());
        let traced = TracedTurn { tenant_id, conversation_id, turn_id, assistant, taken_over: false };
        scope.observer = direct.observer.clone();
        scope.trace = engine.trace(&traced, Some(&direct.context), &scope.setup);
        let scope = Arc::new(scope);
        let taint = direct_taint(engine, &direct.assistant, &direct.caller);
        let turn = DirectTurn { context: direct.context.clone(), state: Arc::new(state), taint, place, registration };
        match turn.open(engine, &scope, direct.clone()).await {
            Ok((prepared, job_id)) => break (turn, scope, prepared, job_id),
            // A turn of another process is ahead. Everything is decided again after it, because it may change the state.
            Err(Refusal::Store(StoreError::Busy)) if engine.is_shared() && !patience.passed() && !engine.is_draining() => {
                place = turn.place;
            }
            Err(refusal) => return Err(refusal),
        }
        wakeups.within(POLL).await;
    };
    let (sender, outcome) = oneshot::channel();
    engine.tasks.spawn(async move {
        let work = turn.run_request(&scope, prepared, &direct.request, |outcome| drop(sender.send(outcome)));
        scope.run_until_released(work).await;
    });
    Ok(StartedCall { job_id, turn_id, outcome })
}

/// The state of the call's conversation, if the caller may see the conversation.
async fn conversation_state(engine: &Engine, direct: &DirectCall) -> Result<State, Refusal> {
    let Some(id) = direct.conversation_id else { return Ok(State::new()) };
    let principal = &direct.caller.principal;
    let conversation = engine.store.records.conversation(principal.tenant_id, id).await?;
    let visible = conversation.filter(|conversation| direct.caller.admin || conversation.user_id == principal.user_id);
    visible.map(|conversation| conversation.state).ok_or(Refusal::UnknownConversation)
}

/// The policy of the assistant whose call is retried.
pub(crate) fn direct_taint(engine: &Engine, assistant: &str, caller: &Caller) -> Taint {
    let policy = engine.assistant_named(&engine.setup(), assistant, caller).map(|assistant| assistant.taint).unwrap_or_default();
    Taint::of_direct_call(policy)
}

/// The turn of a direct call. It holds its place in the queue, and its registration as running.
pub(crate) struct DirectTurn {
    pub(crate) context: ToolContext,
    pub(crate) state: Arc<State>,
    pub(crate) taint: Taint,
    pub(crate) place: QueuePlace,
    #[expect(dead_code, reason = "held so that the recovery scan leaves the turn alone")]
    pub(crate) registration: Registration,
}

impl DirectTurn {
    pub(crate) fn batch<'a>(&'a self, scope: &'a Arc<TurnScope>) -> CallBatch<'a> {
        CallBatch { scope, step: 1, state: &self.state, context: &self.context, earlier: &[], taint: &self.taint }
    }

    /// Commits A and B in one.
    async fn open(&self, engine: &Engine, scope: &Arc<TurnScope>, direct: DirectCall) -> Result<(Vec<PreparedCall>, Uuid), Refusal> {
        debug_assert!(self.place.is_first(), "no turn is ahead in the queue");
        let prepared = self.batch(scope).prepare(vec![direct.request.clone()]).await?;
        let Some(call) = prepared.first() else { return Err(Refusal::UnknownCall) };
        let job_id = call.row.id;
        let mut open = open_turn(scope, call, &direct, &engine.owner);
        for approval in &open.approvals {
            open.outbox.extend(approver_rows(scope, approval).await?);
        }
        open.outbox.extend(scope.journal.audience().approvals(&open.approvals));
        let opened_at = open.now;
        match engine.journals.open(open, &scope.running).await? {
            Opened::Stored { fence: Some(fence), event_seqs, .. } => {
                for (seq, call) in event_seqs.iter().zip(&prepared) {
                    let data = Arc::from(json(&tool_started(&call.row)));
                    let event =
                        LiveEvent { seq: Some(*seq), kind: EventType::ToolStarted, turn_id: scope.turn_id, data, at: Some(opened_at) };
                    engine.journals.publish(scope.journal.stream_id(), &event);
                }
                engine.store.cluster.notify();
                scope.journal.bind(fence);
                Ok((prepared, job_id))
            }
            Opened::Stored { fence: None, .. } => Err(Refusal::Busy { retry_after_ms: 1000 }),
            Opened::Duplicate { turn_id, same_body } => {
                release_key(scope, call).await?;
                Err(Refusal::Duplicate { turn_id, same_body })
            }
            Opened::Retried { call_id } => {
                release_key(scope, call).await?;
                let message = format!(
                    "call {call_id} is the retry of this unknown outcome; read that call, and retry it if its own outcome is unknown"
                );
                Err(Refusal::Conflict { code: "already_retried", message })
            }
            Opened::Recorded => Err(Refusal::Recorded),
            Opened::UnknownConversation => Err(Refusal::UnknownConversation),
            // A direct call reserves nothing.
            Opened::Superseded | Opened::OverBudget(_) | Opened::StaleBudgets => Err(Refusal::Superseded),
        }
    }

    /// Waits for the identical call that this one follows, if it does, and runs the call to its end.
    async fn run_request(
        &self,
        scope: &Arc<TurnScope>,
        prepared: Vec<PreparedCall>,
        request: &CallRequest,
        report: impl FnOnce(InvokeOutcome),
    ) {
        match self.batch(scope).settle_follower(prepared, request).await {
            Ok(prepared) => self.run(scope, prepared, report).await,
            Err(error) => tracing::error!(turn_id = %scope.turn_id, %error, "the call could not be ended"),
        }
    }

    /// Runs the call to its end, and reports the outcome.
    pub(crate) async fn run(&self, scope: &Arc<TurnScope>, prepared: Vec<PreparedCall>, report: impl FnOnce(InvokeOutcome)) {
        match self.run_call(scope, prepared).await {
            Ok(outcome) => report(outcome),
            Err(error) => tracing::error!(turn_id = %scope.turn_id, %error, "the call could not be ended"),
        }
    }

    /// Commits C and D in one.
    async fn run_call(&self, scope: &Arc<TurnScope>, prepared: Vec<PreparedCall>) -> Result<InvokeOutcome, StoreError> {
        let result = self.batch(scope).run(prepared).await?;
        if let Some(approval_id) = result.waiting.first().and_then(|call| call.approval_id) {
            await_approvals(scope, 1, result.waiting, None).await?;
            return Ok(InvokeOutcome::Awaiting { approval_id });
        }
        let Some(FinishedCall { row, outcome, .. }) = result.finished.into_iter().next() else {
            return Err(StoreError::Broken("a direct call has no outcome".to_owned()));
        };
        match &outcome.result {
            Ok(success) => stage_success(scope, success.message.clone()),
            Err(failure) => {
                let status = if outcome.status == CallStatus::Canceled { TurnStatus::Canceled } else { TurnStatus::Failed };
                fail(scope, status, 1, TurnError::new(failure.kind, failure.code.to_string(), failure.message.clone()));
            }
        }
        scope.journal.commit(CommitPoint::End).await?;
        scope.end_span(outcome.result.as_ref().err().map(|failure| failure.code.as_ref()), (None, None));
        Ok(InvokeOutcome::Done(Box::new(output_of(&finished_row(row, &outcome)))))
    }
}

/// Releases the key of a call that is not stored: the call that became a turn may be waiting for it.
async fn release_key(scope: &TurnScope, call: &PreparedCall) -> Result<(), StoreError> {
    if let (Some((key, job_id)), None) = (call.led_key(), scope.conversation_id) {
        scope.cluster.release_key(scope.tenant_id(), key.to_owned(), job_id).await?;
        scope.cluster.notify();
    }
    Ok(())
}

fn open_turn(scope: &TurnScope, call: &PreparedCall, direct: &DirectCall, owner: &str) -> OpenTurn {
    let now = scope.clock.now();
    let any_user = direct.caller.admin;
    let started = call.row.started_at.map(|_| NewEvent { kind: EventType::ToolStarted, data: json(&tool_started(&call.row)) });
    let conversation = scope.conversation_id.map_or(ConversationRef::None, |id| ConversationRef::Existing { id, any_user });
    OpenTurn {
        kind: direct.kind,
        assistant: direct.assistant.clone(),
        key_id: direct.caller.key_id,
        credential: direct.caller.credential.clone(),
        inbox: direct.idempotency.as_ref().map(|key| inbox_entry(&direct.caller, key, now)),
        calls: vec![call.row.clone()],
        approvals: call.new_approval().into_iter().collect(),
        events: started.into_iter().collect(),
        ..OpenTurn::new(scope.tenant_id(), &direct.caller.principal.user_id, scope.turn_id, conversation, owner, now)
    }
}

fn stage_success(scope: &TurnScope, message: Option<String>) {
    let status = TurnStatus::Completed;
    scope.journal.stage(TurnChange { status, step: 1, error: None, message: message.clone(), transcript_digest: None });
    if let Some(conversation_id) = scope.conversation_id {
        let stored = StoredFinal {
            conversation_id,
            turn_id: scope.turn_id,
            created: false,
            status,
            message: ChatMessage::assistant(message.unwrap_or_default()),
            client_calls: Vec::new(),
            finish_reason: FinishReason::default(),
            usage: Usage::default(),
        };
        scope.journal.stage_event(EventType::Final, &stored);
    }
}

/// The row as it stands after the commit.
fn finished_row(mut row: CallRow, outcome: &CallOutcome) -> CallRow {
    if !row.status.is_terminal() {
        apply_outcome(&mut row, outcome);
    }
    row
}
