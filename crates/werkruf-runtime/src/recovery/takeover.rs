//! Takes over one turn that no process works on.

use std::sync::Arc;

use werkruf_contract::{EventType, Init, Principal, State, Texts, ToolContext, TurnStatus, Uuid};
use werkruf_store::{
    ApprovalFilter, ApprovalRow, CallFilter, CallRow, Fence, MessageRow, Order, Page, ReadLimit, StoreError, TurnRow, crash,
};

use super::close::Closing;
use super::leftover::Leftover;
use super::resume::resume;
use crate::budgets::TurnTokens;
use crate::call::TurnScope;
use crate::channel::Inbound;
use crate::client_request::ClientRequest;
use crate::engine::{Engine, Registration};
use crate::lease::QueuePlace;
use crate::request::{Caller, InboundMessage, Pins};
use crate::timer;
use crate::trace::{TracedTurn, TurnTrace};
use crate::turn::{DirectTurn, History, StoredTurn, Turn, UnstartedTurn, direct_taint, history_rows, own_messages_last};

/// More rows than a turn can have.
const ALL_ROWS: Page = Page::of(100_000, Order::OldestFirst);

/// Queues a turn, unless it runs here already or the process drains.
pub(super) fn take_over(engine: &Arc<Engine>, turn: TurnRow) -> bool {
    let unstarted = turn.status == TurnStatus::Accepted;
    let Some(registration) = engine.register(turn.tenant_id, turn.id).filter(|_| !engine.is_draining()) else {
        // If it waits here for a turn ahead, a process that is gone has started it meanwhile: the next scan takes it over. A single process
        // starts its turns itself, and may not know yet that it did.
        if engine.is_shared()
            && !unstarted
            && let Some(waiting) = engine.running.get(turn.id)
        {
            waiting.start_elsewhere();
        }
        return false;
    };
    // In a cluster, a turn in the local queue may be waiting for this very turn; there the store keeps the order.
    let queue = turn.conversation_id.filter(|_| !engine.is_shared()).unwrap_or(turn.id);
    let place = engine.queues.enter(queue);
    tracing::info!(turn_id = %turn.id, status = %turn.status, step = turn.step, takeovers = turn.takeovers, "taking over a turn");
    engine.tasks.spawn(Takeover { engine: Arc::clone(engine), turn, unstarted }.run(registration, place));
    true
}

/// Continues a turn that waits for an approval. One that still works here is rechecked when it has stopped.
pub(crate) async fn wake(engine: &Arc<Engine>, tenant_id: Uuid, turn_id: Uuid) -> Result<(), StoreError> {
    if engine.running.request_recheck(turn_id) {
        return Ok(());
    }
    if let Some(turn) = engine.store.records.turn(tenant_id, turn_id).await?
        && turn.status == TurnStatus::AwaitingApproval
        && !take_over(engine, turn)
    {
        // Another task took it over just now, perhaps before the decision could be seen.
        engine.running.request_recheck(turn_id);
    }
    Ok(())
}

struct Takeover {
    engine: Arc<Engine>,
    turn: TurnRow,
    /// The turn never started.
    unstarted: bool,
}

/// A turn that this process has claimed and may continue.
struct ClaimedTurn {
    caller: Caller,
    context: ToolContext,
    inbound: Option<Arc<Inbound>>,
    fence: Fence,
    calls: Vec<CallRow>,
    registration: Registration,
    place: QueuePlace,
}

impl Takeover {
    async fn run(self, registration: Registration, mut place: QueuePlace) {
        if !self.reached(&registration, &mut place).await {
            return;
        }
        let turn_id = self.turn.id;
        match Box::pin(self.claim_and_continue(registration, place)).await {
            // Another process ended or claimed it in the meantime.
            Ok(()) | Err(StoreError::Moved { .. } | StoreError::Fenced | StoreError::Busy) => {}
            Err(error) => tracing::error!(%turn_id, %error, "the turn could not be taken over"),
        }
    }

    /// Waits for the turn's place; false when it never started and was canceled first.
    async fn reached(&self, registration: &Registration, place: &mut QueuePlace) -> bool {
        if !self.unstarted {
            place.reached().await;
            return true;
        }
        let audience = match self.engine.audience_of(&self.turn).await {
            Ok(audience) => audience,
            Err(error) => {
                tracing::warn!(turn_id = %self.turn.id, %error, "a turn that waits could not be looked up");
                place.reached().await;
                return true;
            }
        };
        let running = registration.running();
        if self.turn.cancel_requested {
            running.cancel();
        }
        let trace = trace_of(&self.engine, &self.turn, None);
        let unstarted = UnstartedTurn { engine: &self.engine, audience, running: Some(running), trace };
        let locale = || self.turn.context.as_deref().and_then(stored_context).and_then(|context| context.locale);
        unstarted.reached(place, || Texts::of(&locale().unwrap_or_default())).await
    }

    async fn claim_and_continue(mut self, registration: Registration, place: QueuePlace) -> Result<(), StoreError> {
        let principal = self.engine.store.people.principal(self.turn.tenant_id, self.turn.user_id.clone()).await?;
        let sent_at = timer::now();
        let fence = self.claim().await?;
        registration.running().lease().acquire(&fence, sent_at);
        crash::point("after_claim");
        // A turn that waited for an approval or for its start was left by nobody.
        if !self.unstarted && self.turn.status != TurnStatus::AwaitingApproval {
            self.engine.store.models.metrics.took_over();
        }
        // Read again under the lease: since the scan, another process may have taken the turn a step further. Where one process holds the
        // database, a crash was counted at the start, and this takeover counts only if nothing comes of it. In a cluster the claim itself has
        // counted the loss.
        let stalled = self.turn.stalled;
        let row = self.engine.store.records.turn(self.turn.tenant_id, self.turn.id).await?.ok_or(StoreError::Fenced)?;
        self.turn = if self.engine.is_shared() { row } else { TurnRow { stalled, ..row } };
        let calls = self.calls().await?;
        let Some(principal) = principal else { return self.close_without_user(fence, calls, &registration).await };
        let caller = self.caller(principal);
        let is_chat = self.turn.kind == "chat";
        let stored = if is_chat { self.turn.context.as_deref() } else { calls.first().map(|call| call.context.as_str()) };
        let (Some(context), Ok(inbound)) = (stored.and_then(stored_context), Inbound::stored(self.turn.inbound.as_deref())) else {
            tracing::error!(turn_id = %self.turn.id, "the context of the turn is not readable; the turn ends");
            return self.close(caller, fence, calls, &registration, Closing::UnknownContext).await;
        };
        let claimed = ClaimedTurn { caller, context, inbound, fence, calls, registration, place };
        match self.turn.conversation_id {
            Some(conversation_id) if is_chat => self.continue_chat(claimed, conversation_id).await,
            Some(_) | None => self.continue_direct(claimed).await,
        }
    }

    /// The caller as the turn's row names it. What the credential pins is in the stored context.
    fn caller(&self, principal: Arc<Principal>) -> Caller {
        let TurnRow { key_id, credential, .. } = &self.turn;
        Caller { principal, key_id: *key_id, credential: credential.clone(), retried_by: None, pins: Pins::default(), admin: false }
    }

    /// Starts a turn that never started, or takes over one that had.
    async fn claim(&self) -> Result<Fence, StoreError> {
        let (turns, turn, now) = (&self.engine.store.turns, &self.turn, self.engine.store.clock.now());
        if self.unstarted {
            turns.start_turn(turn.tenant_id, turn.id, &self.engine.owner, now).await
        } else {
            turns.take_over(turn.tenant_id, turn.id, self.engine.owner.clone(), now).await
        }
    }

    async fn calls(&self) -> Result<Vec<CallRow>, StoreError> {
        let filter = CallFilter { turn_id: Some(self.turn.id), ..CallFilter::default() };
        let mut calls = self.engine.store.records.calls(self.turn.tenant_id, filter, ALL_ROWS).await?;
        calls.sort_unstable_by_key(|call| (call.step, call.output_index));
        Ok(calls)
    }

    async fn approvals(&self) -> Result<Vec<ApprovalRow>, StoreError> {
        let filter = ApprovalFilter { turn_id: Some(self.turn.id), ..ApprovalFilter::default() };
        self.engine.store.approvals.approvals(self.turn.tenant_id, filter, ALL_ROWS).await
    }

    async fn continue_chat(self, claimed: ClaimedTurn, conversation_id: Uuid) -> Result<(), StoreError> {
        let ClaimedTurn { caller, context, inbound, fence, calls, registration, place } = claimed;
        let (store, tenant_id, turn_id) = (&self.engine.store, self.turn.tenant_id, self.turn.id);
        let mut history = history_rows(&self.engine, tenant_id, conversation_id).await?;
        own_messages_last(&mut history, turn_id);
        let approvals = self.approvals().await?;
        let client = store.clients.client_request(tenant_id, turn_id).await?;
        let state = store.records.conversation(tenant_id, conversation_id).await?.map(|row| row.state).unwrap_or_default();
        let events = store.streams.events(tenant_id, conversation_id, Some(turn_id), 0, ReadLimit::rows(1)).await?;
        let init = events.first().filter(|event| event.kind == EventType::Init);
        let created = init.and_then(|event| serde_json::from_str::<Init>(&event.data).ok()).is_some_and(|init| init.created);
        let stored = StoredTurn {
            engine: Arc::clone(&self.engine),
            setup: self.engine.setup(),
            message: self.stored_message(caller, context, conversation_id, &history, ClientRequest::stored(client.as_deref(), turn_id)),
            init: Init { chat_id: conversation_id, conversation_id, turn_id, created },
            registration,
            place,
            assistant: self.turn.assistant.clone(),
            inbound,
            reservation: None,
            taken_over: self.turn.takeovers > 0,
        };
        let turn = stored.turn(fence, state, History::of(&history));
        if self.unstarted && !self.turn.cancel_requested {
            turn.run_until_released(Turn::run).await;
        } else {
            turn.scope.release_reservations();
            turn.scope.continue_tokens().await?;
            let left = Leftover { turn: self.turn, calls, history, approvals };
            turn.run_until_released(|turn| resume(turn, left)).await;
        }
        Ok(())
    }

    /// The turn's message, as far as the rows have it.
    fn stored_message(
        &self,
        caller: Caller,
        context: ToolContext,
        conversation_id: Uuid,
        history: &[MessageRow],
        client: Option<ClientRequest>,
    ) -> InboundMessage {
        let own = history.iter().find(|row| row.turn_id == Some(self.turn.id) && row.role == "user");
        InboundMessage {
            caller,
            conversation_id: Some(conversation_id),
            message: own.map(|row| row.content.clone()).unwrap_or_default(),
            assistant: Some(self.turn.assistant.clone()).filter(|name| !name.is_empty()),
            channel: String::new(),
            locale: None,
            debug: false,
            idempotency: None,
            // The inbox has it already, and the turn's row says the rest.
            inbound: None,
            context,
            parts: Vec::new(),
            client: client.map(Arc::new),
            results: Vec::new(),
            after: None,
            held: None,
        }
    }

    /// Ends the one call of a direct turn.
    async fn continue_direct(self, claimed: ClaimedTurn) -> Result<(), StoreError> {
        let ClaimedTurn { caller, context, inbound: _, fence, calls, registration, place } = claimed;
        let (store, turn) = (&self.engine.store, &self.turn);
        let conversation = match turn.conversation_id {
            Some(id) => store.records.conversation(turn.tenant_id, id).await?,
            None => None,
        };
        let state: Arc<State> = Arc::new(conversation.map(|row| row.state).unwrap_or_default());
        let taint = direct_taint(&self.engine, &turn.assistant, &caller);
        let mut scope = self.scope(caller, fence, &registration, &calls);
        scope.tokens = Arc::new(TurnTokens::new(context.budget_tokens));
        scope.continue_tokens().await?;
        let scope = Arc::new(scope);
        let mut left = Leftover { turn: turn.clone(), calls, history: Vec::new(), approvals: self.approvals().await? };
        // No placeholder shows whether approvers know of the call; the events do.
        let events =
            store.streams.events(turn.tenant_id, scope.journal.stream_id(), Some(turn.id), 0, ReadLimit::rows(ALL_ROWS.limit)).await?;
        if events.iter().any(|event| event.kind == EventType::ApprovalRequired) {
            left.turn.status = TurnStatus::AwaitingApproval;
        }
        if let Some(closing) = left.closing() {
            return left.close(&scope, closing).await;
        }
        let direct = DirectTurn { context, state, taint, place, registration };
        let open = left.calls.iter().map(|call| left.stored_call(call.clone(), None)).collect();
        let prepared = direct.batch(&scope).prepare_stored(open).await?;
        scope.journal.commit(crate::journal::CommitPoint::Takeover).await?;
        scope.run_until_released(direct.run(&scope, prepared, drop)).await;
        Ok(())
    }

    fn scope(&self, caller: Caller, fence: Fence, registration: &Registration, calls: &[CallRow]) -> TurnScope {
        let running = Arc::clone(registration.running());
        let inbound = Inbound::stored(self.turn.inbound.as_deref()).ok().flatten();
        let mut scope = self.engine.scope(self.engine.setup(), caller, self.turn.id, self.turn.conversation_id, running, inbound);
        scope.journal.bind(fence);
        scope.release_reservations();
        scope.trace = trace_of(&self.engine, &self.turn, calls.first());
        scope
    }

    /// The user is gone: no process may act for them any more.
    async fn close_without_user(self, fence: Fence, calls: Vec<CallRow>, registration: &Registration) -> Result<(), StoreError> {
        let turn = &self.turn;
        let principal = Principal {
            tenant_id: turn.tenant_id,
            tenant_slug: self.engine.tenant_slug(turn.tenant_id).await?,
            user_id: turn.user_id.clone(),
            name: String::new(),
            roles: Vec::new(),
            branch_id: None,
            locale: String::new(),
            time_zone: String::new(),
            permissions: Vec::new(),
        };
        let caller = self.caller(Arc::new(principal));
        self.close(caller, fence, calls, registration, Closing::UnknownUser).await
    }

    /// Ends the turn; nothing of it runs.
    async fn close(
        self,
        caller: Caller,
        fence: Fence,
        calls: Vec<CallRow>,
        registration: &Registration,
        closing: Closing,
    ) -> Result<(), StoreError> {
        let history = match self.turn.conversation_id {
            Some(id) => self.engine.store.turns.history(self.turn.tenant_id, id).await?,
            None => Vec::new(),
        };
        let scope = self.scope(caller, fence, registration, &calls);
        let approvals = self.approvals().await?;
        Leftover { turn: self.turn, calls, history, approvals }.close(&scope, closing).await
    }
}

/// The trace of a stored turn. A direct call has the context, a chat turn has its own.
pub(crate) fn trace_of(engine: &Engine, turn: &TurnRow, call: Option<&CallRow>) -> TurnTrace {
    let context = turn.context.as_deref().or(call.map(|call| call.context.as_str())).and_then(stored_context);
    let traced = TracedTurn {
        tenant_id: turn.tenant_id,
        conversation_id: turn.conversation_id,
        turn_id: turn.id,
        assistant: &turn.assistant,
        taken_over: turn.takeovers > 0,
    };
    engine.trace(&traced, context.as_ref(), &engine.setup())
}

/// A stored context. It holds what the credential and the request limit, so without it nothing may run.
fn stored_context(text: &str) -> Option<ToolContext> {
    ToolContext::from_json(serde_json::from_str(text).ok()?).ok()
}
