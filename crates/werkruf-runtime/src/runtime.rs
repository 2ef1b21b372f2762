//! The runtime's public interface: a message, a direct call, a retry, a decision, a cancel.

use std::sync::Arc;
use std::time::Duration;

use werkruf_contract::{
    ApprovalStatus, BoxFuture, CallStatus, Deadline, Effect, ModelSource, Principal, TextAnswer, TextRequest, Texts, TurnError, TurnStatus,
    Uuid,
};
use werkruf_llm::Embedded;
use werkruf_store::{Actor, ApprovalRow, Author, NewOutboxRow, OutboxRow, Page, ReadLimit, StoreError, StreamKey, crash};

use crate::alerts::{self, AlertSources};
use crate::approvals::{self, Decider};
use crate::budgets::Spender;
use crate::conditions::Conditions;
use crate::engine::{Engine, Services};
use crate::lease::Heartbeat;
use crate::model::{ModelAccess, RequestError};
use crate::outbox;
use crate::progress::LoopProgress;
use crate::rate_limit::RateRoom;
use crate::recovery;
use crate::request::{AcceptedTurn, Caller, InboundMessage, Invoke, InvokeResult, Refusal, StartedCall};
use crate::setup::Setup;
use crate::stream::{self, Checkpoints, Joined, RemoteStreams, SubscribeOptions, Subscription};
use crate::turn::{self, UnstartedTurn};

/// How long released turns may take to give their leases back.
const RELEASE_WAIT: Duration = Duration::from_secs(2);
/// How often the budgets are read where other processes may change them.
const BUDGETS_EVERY: Duration = Duration::from_secs(1);

/// What one process has to do at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Turns that have not ended, waiting ones included.
    pub running_turns: usize,
    /// Of these, turns that wait behind another turn of their conversation.
    pub waiting_turns: usize,
    /// Model requests that wait for a place at the gate.
    pub waiting_model_requests: usize,
}

/// Runs turns. Clones share everything.
#[derive(Clone)]
pub struct Runtime {
    engine: Arc<Engine>,
}

impl Runtime {
    pub fn new(services: Services, setup: Setup) -> Self {
        Self { engine: Arc::new(Engine::new(services, setup, recheck)) }
    }

    /// New turns use this from now on.
    pub fn reload(&self, setup: Setup) {
        self.engine.reload(setup);
    }

    /// What new turns use.
    pub fn setup(&self) -> Arc<Setup> {
        self.engine.setup()
    }

    /// Reads the budgets of all tenants again, at the start and after a change.
    pub async fn refresh_budgets(&self) -> Result<(), StoreError> {
        self.engine.store.models.budgets.refresh().await
    }

    /// Accepts a message. When this resolves, the message is durable, and its turn will end.
    pub async fn chat(&self, message: InboundMessage) -> Result<AcceptedTurn, Refusal> {
        turn::accept(&self.engine, message).await
    }

    /// Whether the process has a place for another turn. Asked before the request is read.
    pub fn check_place(&self) -> Result<(), Refusal> {
        self.engine.check_place()
    }

    /// Whether the limits let this caller start a turn now. Nothing is counted: [`Self::chat`] does that.
    pub fn check_turn_limits(&self, caller: &Caller, channel: &str) -> Result<(), Refusal> {
        self.engine.check_turn_limits(caller, channel)
    }

    /// How many turns this caller may start on a channel; `None` where no limit counts them.
    pub fn turn_room(&self, caller: &Caller, channel: &str) -> Option<RateRoom> {
        self.engine.turn_room(caller, channel)
    }

    /// Calls a tool and waits for its outcome. A caller that leaves does not cancel the call.
    pub async fn invoke(&self, invoke: Invoke) -> Result<InvokeResult, Refusal> {
        turn::invoke(&self.engine, invoke).await
    }

    /// Calls a tool. When this resolves, the call is durable and runs; its outcome comes later.
    pub async fn start_call(&self, invoke: Invoke) -> Result<StartedCall, Refusal> {
        turn::start_call(&self.engine, invoke).await
    }

    /// Waits until a turn of this or another process has ended or waits for an approval; false if it still runs after the time that a turn may
    /// take, or does not exist.
    pub async fn settled(&self, tenant_id: Uuid, turn_id: Uuid) -> Result<bool, StoreError> {
        turn::settled(&self.engine, tenant_id, turn_id).await
    }

    /// Runs a failed call again, for the user it was made for. Returns the new call's id.
    pub async fn retry_call(&self, caller: &Caller, call_id: Uuid, force: bool) -> Result<Uuid, Refusal> {
        turn::retry_call(&self.engine, caller, call_id, force).await
    }

    /// Vectors for texts, outside a turn. Each request has a usage row and counts for budgets.
    pub async fn embed(
        &self,
        caller: &Caller,
        texts: &[String],
        dimensions: Option<u32>,
        deadline: Deadline,
    ) -> Result<Embedded, TurnError> {
        self.outside_turns(caller, None).request_vectors(texts, dimensions, deadline).await.map_err(RequestError::into_turn_error)
    }

    /// The model that makes vectors.
    pub fn embedding_model(&self) -> Option<&str> {
        self.engine.store.models.embedding_model()
    }

    /// A text of the language model, outside a turn, in the name of an assistant.
    pub async fn write_text(
        &self,
        caller: &Caller,
        assistant: &str,
        request: TextRequest,
        deadline: Deadline,
    ) -> Result<TextAnswer, TurnError> {
        self.outside_turns(caller, Some(assistant)).request_text(request, deadline).await.map_err(RequestError::into_turn_error)
    }

    fn outside_turns(&self, caller: &Caller, assistant: Option<&str>) -> ModelAccess {
        let spender = Spender {
            tenant_id: caller.principal.tenant_id,
            user_id: caller.principal.user_id.clone(),
            key_id: caller.key_id,
            assistant: assistant.map(str::to_owned),
        };
        ModelAccess::outside_turns(self.engine.store.models.clone(), spender, "chat")
    }

    /// How many tokens the first model request for this message would have. Nothing is stored or sent.
    pub async fn input_tokens(&self, message: &InboundMessage) -> Result<u64, StoreError> {
        turn::input_tokens(&self.engine, message).await
    }

    /// Subscribes to a conversation from now on. Turns publish their events as soon as they are stored, each turn its own in order. A missing number
    /// comes later, or is in the rows only.
    pub fn subscribe(&self, stream: StreamKey, options: SubscribeOptions) -> Subscription {
        self.engine.broadcast.subscribe(stream, options).0
    }

    /// Subscribes after an event; also returns the stored events that follow it, and the text that is being written right now.
    pub async fn join(&self, stream: StreamKey, options: SubscribeOptions, limit: ReadLimit) -> Result<Joined, StoreError> {
        stream::join(self.engine.store.streams.as_ref(), &self.engine.broadcast, stream, options, limit).await
    }

    /// One approval, for a decider that may see it.
    pub async fn approval(&self, decider: Decider<'_>, id: Uuid) -> Result<ApprovalRow, Refusal> {
        approvals::approval(&self.engine, decider, id).await
    }

    /// The approvals that this decider may decide.
    pub async fn approvals(&self, decider: Decider<'_>, status: Option<ApprovalStatus>, page: Page) -> Result<Vec<ApprovalRow>, Refusal> {
        approvals::approvals(&self.engine, decider, status, page).await
    }

    /// Decides an approval, once, and continues its turn.
    pub async fn decide(&self, decider: Decider<'_>, id: Uuid, approve: bool) -> Result<ApprovalRow, Refusal> {
        approvals::decide(&self.engine, decider, id, approve).await
    }

    /// Decides an approval for a person who pressed a button on a channel. The credential names the channel and the person.
    pub async fn decide_as(&self, person: &Principal, credential: &str, id: Uuid, approve: bool) -> Result<ApprovalRow, Refusal> {
        let actor = Actor { user_id: Some(person.user_id.clone()), ..Actor::default() };
        let author = Author { actor, address: None };
        let decider = Decider { tenant_id: person.tenant_id, person: Some(person), admin: false, credential, author: &author };
        self.decide(decider, id, approve).await
    }

    /// Requests the cancel of a turn; false when it has ended already.
    pub async fn cancel_turn(&self, tenant_id: Uuid, turn_id: Uuid) -> Result<bool, Refusal> {
        let engine = &self.engine;
        let requested = engine.store.turns.request_cancel(tenant_id, turn_id, engine.store.clock.now()).await?;
        if requested {
            if let Some(running) = engine.running.get(turn_id) {
                running.cancel();
            }
            self.cancel_unstarted(tenant_id, turn_id).await?;
            engine.store.cluster.notify();
            // A turn that waits for an approval has no task that could see the request.
            recovery::wake(engine, tenant_id, turn_id).await?;
        }
        Ok(requested)
    }

    /// Ends a turn that waits in the queue of another process. One that waits here ends by itself.
    async fn cancel_unstarted(&self, tenant_id: Uuid, turn_id: Uuid) -> Result<(), StoreError> {
        let engine = &self.engine;
        if !engine.is_shared() {
            return Ok(());
        }
        let turn = engine.store.records.turn(tenant_id, turn_id).await?;
        let Some(turn) = turn.filter(|turn| turn.status == TurnStatus::Accepted) else { return Ok(()) };
        let audience = engine.audience_of(&turn).await?;
        let principal = engine.store.people.principal(tenant_id, turn.user_id.clone()).await?;
        let texts = Texts::of(principal.as_ref().map_or("", |principal| &principal.locale));
        let trace = recovery::trace_of(engine, &turn, None);
        UnstartedTurn { engine, audience, running: None, trace }.cancel(&texts).await.map(|_| ())
    }

    /// Cancels one call; false when it does not run and waits for no approval.
    pub async fn cancel_call(&self, tenant_id: Uuid, call_id: Uuid) -> Result<bool, Refusal> {
        let engine = &self.engine;
        let call = engine.store.records.call(tenant_id, call_id).await?.ok_or(Refusal::UnknownCall)?;
        if engine.running.get(call.turn_id).is_some_and(|running| running.cancel_call(call_id)) {
            return Ok(true);
        }
        if let Some(canceled) = approvals::cancel_approval(engine, tenant_id, call.turn_id, call_id).await? {
            return Ok(canceled);
        }
        // It may run in another process.
        let requested = engine.store.cluster.request_call_cancel(tenant_id, call_id).await?;
        engine.store.cluster.notify();
        Ok(requested)
    }

    /// Cancels a call because its client withdraws the request; false when it goes on. A call that was sent and must not be repeated goes on: nobody
    /// would know the outcome of a call that was stopped in the middle.
    pub async fn withdraw_call(&self, tenant_id: Uuid, call_id: Uuid) -> Result<bool, Refusal> {
        let engine = &self.engine;
        let call = engine.store.records.call(tenant_id, call_id).await?.ok_or(Refusal::UnknownCall)?;
        if let Some(canceled) = engine.running.get(call.turn_id).and_then(|running| running.cancel_unsent_call(call_id)) {
            return Ok(canceled);
        }
        // It may run in another process, which has sent it.
        if call.effect == Effect::Once && call.status == CallStatus::Running {
            return Ok(false);
        }
        self.cancel_call(tenant_id, call_id).await
    }

    /// Cancels a call whose caller has left, unless an identical call waits for its outcome; false when it goes on.
    pub async fn cancel_abandoned(&self, tenant_id: Uuid, call_id: Uuid) -> Result<bool, Refusal> {
        if self.engine.turn_services.in_flight.is_followed(call_id) {
            return Ok(false);
        }
        self.cancel_call(tenant_id, call_id).await
    }

    /// Takes over every turn that has not ended and that no process works on. Returns how many there were.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        recovery::recover(&self.engine).await
    }

    /// Recovers turns until the process drains. In a cluster it also renews leases and delivers events of other processes, until the last turn
    /// here has ended.
    pub async fn run_background(&self) {
        let engine = &self.engine;
        let Some(ttl) = engine.store.cluster.lease_ttl() else {
            return recovery::recover_until_stopped(engine).await;
        };
        let heartbeat = Heartbeat {
            cluster: &*engine.store.cluster,
            owner: &engine.owner,
            running: &engine.running,
            wakeup: &engine.wakeup,
            tasks: &engine.tasks,
        };
        let remote = RemoteStreams {
            cluster: &*engine.store.cluster,
            records: &*engine.store.records,
            streams: &*engine.store.streams,
            broadcast: &engine.broadcast,
            running: &engine.running,
            wakeup: &engine.wakeup,
            tasks: &engine.tasks,
        };
        tokio::join!(
            recovery::recover_until_stopped(engine),
            self.follow_budgets(),
            heartbeat.renew(ttl),
            remote.run(),
            heartbeat.forward_notifications()
        );
    }

    /// Other processes change budgets too. Commit A notices a change at once; requests of running turns and outside turns learn of it here.
    async fn follow_budgets(&self) {
        let engine = &self.engine;
        loop {
            tokio::select! {
                biased;
                () = engine.stopping.raised() => return,
                () = tokio::time::sleep(BUDGETS_EVERY) => {}
            }
            if let Err(error) = self.refresh_budgets().await {
                tracing::warn!(%error, "the budgets could not be read again");
            }
        }
    }

    /// Saves text that is being written, until the last turn of a draining process has ended.
    pub async fn save_partial_text(&self) {
        let engine = &self.engine;
        let checkpoints = Checkpoints {
            streams: &*engine.store.streams,
            cluster: &*engine.store.cluster,
            broadcast: &engine.broadcast,
            clock: &engine.store.clock,
            tasks: &engine.tasks,
        };
        checkpoints.run().await;
    }

    /// Sends rows of the outbox until the process drains. A drain waits for it.
    pub async fn run_outbox(&self) {
        let engine = &self.engine;
        engine.tasks.track_future(outbox::run(engine)).await;
    }

    /// Rows were written outside a turn: they are sent at once.
    pub fn wake_outbox(&self) {
        self.engine.journals.outbox.wake();
    }

    /// The loop that sends rows of the outbox.
    pub fn outbox_progress(&self) -> &LoopProgress {
        &self.engine.outbox_progress
    }

    /// The loop that looks for turns without an owner.
    pub fn recovery_progress(&self) -> &LoopProgress {
        &self.engine.recovery_progress
    }

    /// Tells the operator what is wrong, until the process drains.
    pub async fn run_alerts(&self, sources: AlertSources) {
        let engine = &self.engine;
        engine.tasks.track_future(alerts::run(engine, sources)).await;
    }

    /// What is wrong as this process sees it.
    pub fn conditions(&self) -> &Conditions {
        self.engine.store.models.gate.conditions()
    }

    /// The loop that tells the operator what is wrong.
    pub fn alerts_progress(&self) -> &LoopProgress {
        &self.engine.alerts_progress
    }

    /// What this process has to do at the moment.
    pub fn load(&self) -> Load {
        let engine = &self.engine;
        Load {
            running_turns: engine.running.len(),
            waiting_turns: engine.queues.waiting(),
            waiting_model_requests: engine.store.models.gate.waiting(),
        }
    }

    /// What programs are told about a row that a delivery report makes dead.
    pub async fn dead_letter_rows(&self, row: &OutboxRow, code: &str) -> Result<Vec<NewOutboxRow>, StoreError> {
        outbox::dead_letter_rows(&self.engine, row, code).await
    }

    /// Whether no new turns are accepted.
    pub fn is_draining(&self) -> bool {
        self.engine.is_draining()
    }

    /// Accepts nothing new, lets running turns finish for a while, releases the rest (they continue after the next start), and ends all streams.
    pub async fn drain(&self) {
        let engine = &self.engine;
        engine.start_draining();
        crash::point("in_drain");
        if tokio::time::timeout(engine.limits.drain(), engine.tasks.wait()).await.is_err() {
            for (_, running) in engine.running.all() {
                running.release();
            }
            crash::point("in_release");
            // A released turn only has to give its lease back.
            let _ = tokio::time::timeout(RELEASE_WAIT, engine.tasks.wait()).await;
        }
        engine.broadcast.close();
    }
}

/// Continues a turn for which a decision or a cancel came just as its work stopped.
fn recheck(engine: Arc<Engine>, tenant_id: Uuid, turn_id: Uuid) -> BoxFuture<'static, ()> {
    Box::pin(async move { drop(recovery::wake(&engine, tenant_id, turn_id).await) })
}
