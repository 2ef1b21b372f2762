//! The services and the state that all turns of this process share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio_util::task::TaskTracker;
use werkruf_contract::{BoxFuture, Cancel, Clock, Texts, ToolContext, Uuid};
use werkruf_store::{Approvals, ClientRequests, Cluster, Outbox, People, Records, Store, StoreError, Streams, TurnRow, Turns};

use crate::arrivals::Arrivals;
use crate::assistant::Assistant;
use crate::budgets::{Spender, TurnTokens};
use crate::call::{InFlight, ResultLimit, TurnScope, TurnServices};
use crate::channel::Inbound;
use crate::journal::{Audience, Journal, JournalStore, TurnOwner};
use crate::lease::{RunningTurn, RunningTurns, TurnQueues, Wakeup};
use crate::limits::Limits;
use crate::model::ModelAccounts;
use crate::progress::LoopProgress;
use crate::rate_limit::RateLimiter;
use crate::request::{Caller, Refusal};
use crate::setup::Setup;
use crate::stream::Broadcast;
use crate::timer;
use crate::trace::{TracedTurn, Tracer, TurnTrace};

/// What the runtime is built from.
pub struct Services {
    pub turns: Arc<dyn Turns>,
    pub records: Arc<dyn Records>,
    pub people: Arc<dyn People>,
    pub approvals: Arc<dyn Approvals>,
    pub clients: Arc<dyn ClientRequests>,
    pub streams: Arc<dyn Streams>,
    pub cluster: Arc<dyn Cluster>,
    pub outbox: Arc<dyn Outbox>,
    pub models: ModelAccounts,
    pub clock: Clock,
    pub limits: Limits,
    /// Makes the spans of turns.
    pub tracer: Tracer,
}

impl Services {
    /// The services of one store.
    pub fn new(store: &Arc<dyn Store>, models: ModelAccounts, clock: Clock, limits: Limits) -> Self {
        Self {
            turns: store.clone(),
            records: store.clone(),
            people: store.clone(),
            approvals: store.clone(),
            clients: store.clone(),
            streams: store.clone(),
            cluster: store.clone(),
            outbox: store.clone(),
            models,
            clock,
            limits,
            tracer: Tracer::default(),
        }
    }
}

/// Continues a turn whose work stopped just as a decision or a cancel came for it.
pub(crate) type Recheck = fn(Arc<Engine>, Uuid, Uuid) -> BoxFuture<'static, ()>;

pub(crate) struct Engine {
    pub(crate) store: Services,
    pub(crate) turn_services: TurnServices,
    pub(crate) journals: JournalStore,
    pub(crate) limits: Arc<Limits>,
    pub(crate) broadcast: Arc<Broadcast>,
    pub(crate) queues: TurnQueues,
    pub(crate) running: RunningTurns,
    pub(crate) tasks: TaskTracker,
    /// Wakes tasks that wait for changes of other processes.
    pub(crate) wakeup: Wakeup,
    /// The loop that sends rows of the outbox: when it last looked for some.
    pub(crate) outbox_progress: LoopProgress,
    /// The loop that looks for turns without an owner.
    pub(crate) recovery_progress: LoopProgress,
    /// The loop that tells the operator what is wrong.
    pub(crate) alerts_progress: LoopProgress,
    /// Names this process in leases.
    pub(crate) owner: String,
    /// Ends the background loops.
    pub(crate) stopping: Cancel,
    /// Turns that had not started at the last recovery scan.
    pub(crate) unstarted: Mutex<BTreeSet<Uuid>>,
    setup: RwLock<Arc<Setup>>,
    /// Requests that are on their way into the inbox.
    pub(crate) arrivals: Arrivals,
    pub(crate) turn_rates: RateLimiter,
    /// Who was told lately that they wrote too many messages.
    pub(crate) told: RateLimiter,
    draining: AtomicBool,
    recheck: Recheck,
}

impl Engine {
    pub(crate) fn new(store: Services, setup: Setup, recheck: Recheck) -> Self {
        let limits = Arc::new(store.limits.clone());
        let broadcast = Arc::new(Broadcast::new(store.cluster.lease_ttl().is_some()));
        let (wakeup, tasks) = (Wakeup::default(), TaskTracker::new());
        let turn_services = TurnServices {
            turns: Arc::clone(&store.turns),
            people: Arc::clone(&store.people),
            records: Arc::clone(&store.records),
            cluster: Arc::clone(&store.cluster),
            outbox: Arc::clone(&store.outbox),
            models: store.models.clone(),
            wakeup: wakeup.clone(),
            tasks: tasks.clone(),
            in_flight: InFlight::default(),
            clock: store.clock.clone(),
            limits: Arc::clone(&limits),
        };
        let journals = JournalStore {
            turns: Arc::clone(&store.turns),
            cluster: Arc::clone(&store.cluster),
            broadcast: Arc::clone(&broadcast),
            outbox: Wakeup::default(),
            clock: store.clock.clone(),
            metrics: Arc::clone(&store.models.metrics),
        };
        Self {
            turn_services,
            journals,
            limits,
            broadcast,
            queues: TurnQueues::default(),
            running: RunningTurns::default(),
            tasks,
            wakeup,
            outbox_progress: LoopProgress::default(),
            recovery_progress: LoopProgress::default(),
            alerts_progress: LoopProgress::default(),
            owner: store.clock.new_id().to_string(),
            stopping: Cancel::default(),
            unstarted: Mutex::default(),
            setup: RwLock::new(Arc::new(setup)),
            arrivals: Arrivals::default(),
            turn_rates: RateLimiter::new("turns", &store.cluster),
            told: RateLimiter::new("told", &store.cluster),
            draining: AtomicBool::new(false),
            recheck,
            store,
        }
    }

    /// What new turns use.
    pub(crate) fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn reload(&self, setup: Setup) {
        *self.setup.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(setup);
    }

    /// Whether other processes work on the same database.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.cluster.lease_ttl().is_some()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// No turn is accepted from now on, and the background loops end.
    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.stopping.raise();
        self.tasks.close();
    }

    /// Whether the process has a place for another turn.
    pub(crate) fn check_place(&self) -> Result<(), Refusal> {
        let full = self.running.len() >= self.limits.queue || self.is_draining();
        if full { Err(Refusal::Busy { retry_after_ms: 1000 }) } else { Ok(()) }
    }

    pub(crate) fn assistant_named<'a>(&self, setup: &'a Setup, name: &str, caller: &Caller) -> Result<&'a Assistant, Refusal> {
        let tenant = caller.principal.tenant_id.to_string();
        setup.assistants.find(name, &[&tenant, &caller.principal.tenant_slug]).ok_or_else(|| Refusal::Invalid {
            code: "invalid_request",
            message: format!("there is no assistant named \"{name}\"; leave `assistant` out for the default one"),
        })
    }

    /// Registers a turn as running in this process, until the registration is dropped. `None` while it already runs here.
    pub(crate) fn register(self: &Arc<Self>, tenant_id: Uuid, turn_id: Uuid) -> Option<Registration> {
        let running = self.running.add(turn_id)?;
        Some(Registration { engine: Arc::clone(self), tenant_id, turn_id, running })
    }

    pub(crate) fn scope(
        &self,
        setup: Arc<Setup>,
        caller: Caller,
        turn_id: Uuid,
        conversation_id: Option<Uuid>,
        running: Arc<RunningTurn>,
        inbound: Option<Arc<Inbound>>,
    ) -> TurnScope {
        let deadline = timer::after(self.limits.turn());
        let principal = &caller.principal;
        let owner = TurnOwner {
            tenant_id: principal.tenant_id,
            tenant_slug: principal.tenant_slug.clone(),
            conversation_id,
            turn_id,
            user_id: principal.user_id.clone(),
        };
        let audience = Audience::new(owner, Arc::clone(&setup), self.store.clock.clone(), inbound.as_deref());
        let (tenant_id, user_id) = (principal.tenant_id, principal.user_id.clone());
        let spender = Spender { tenant_id, user_id, key_id: caller.key_id, assistant: None };
        TurnScope {
            services: self.turn_services.clone(),
            journal: Journal::new(self.journals.clone(), Arc::clone(&running), audience, deadline),
            texts: Texts::of(&principal.locale),
            error_texts: Texts::of(&principal.locale),
            setup,
            caller,
            turn_id,
            conversation_id,
            running,
            deadline,
            debug: false,
            result_limit: ResultLimit::default(),
            inbound,
            used: Mutex::default(),
            spender,
            tokens: Arc::new(TurnTokens::default()),
            reservation: Mutex::default(),
            trace: TurnTrace::default(),
            observer: None,
        }
    }

    /// The trace of a turn. `context` is that of its request, as far as it is known.
    pub(crate) fn trace(&self, turn: &TracedTurn<'_>, context: Option<&ToolContext>, setup: &Arc<Setup>) -> TurnTrace {
        self.store.tracer.turn(turn, context, setup, &self.store.clock)
    }

    /// Who is told about a turn that does not run here.
    pub(crate) async fn audience_of(&self, turn: &TurnRow) -> Result<Audience, StoreError> {
        let owner = TurnOwner {
            tenant_id: turn.tenant_id,
            tenant_slug: self.tenant_slug(turn.tenant_id).await?,
            conversation_id: turn.conversation_id,
            turn_id: turn.id,
            user_id: turn.user_id.clone(),
        };
        let inbound = Inbound::stored(turn.inbound.as_deref()).ok().flatten();
        Ok(Audience::new(owner, self.setup(), self.store.clock.clone(), inbound.as_deref()))
    }

    /// The slug of a tenant, for webhooks; empty where there are none, and for a tenant that does not exist.
    pub(crate) async fn tenant_slug(&self, tenant_id: Uuid) -> Result<String, StoreError> {
        if !self.setup().channels.has_webhooks() {
            return Ok(String::new());
        }
        Ok(self.store.people.tenant(tenant_id.to_string()).await?.map(|tenant| tenant.slug).unwrap_or_default())
    }
}

/// Marks a turn as running in this process: the recovery scan leaves it alone.
pub(crate) struct Registration {
    engine: Arc<Engine>,
    tenant_id: Uuid,
    turn_id: Uuid,
    running: Arc<RunningTurn>,
}

impl Registration {
    pub(crate) const fn running(&self) -> &Arc<RunningTurn> {
        &self.running
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.engine.running.remove(self.turn_id);
        // A decision came while the turn started to wait for it.
        if self.running.needs_recheck()
            && let Ok(handle) = tokio::runtime::Handle::try_current()
        {
            let recheck = (self.engine.recheck)(Arc::clone(&self.engine), self.tenant_id, self.turn_id);
            self.engine.tasks.spawn_on(recheck, &handle);
        }
    }
}
