//! The services and the state that all turns of this process share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio_util::task::TaskTracker;
use werkruf_contract::{BoxFuture, Cancel, Clock, Texts, Uuid};
use werkruf_store::{Approvals, ClientRequests, Cluster, Outbox, People, Records, Store, StoreError, Streams, TurnRow, Turns};

use crate::assistant::Assistant;
use crate::call::{InFlight, ResultLimit, TurnScope, TurnServices};
use crate::channel::{Inbound, OverLimit};
use crate::journal::{Audience, Journal, JournalStore, TurnOwner};
use crate::lease::{RunningTurn, RunningTurns, TurnQueues, Wakeup};
use crate::limits::Limits;
use crate::model::ModelAccounts;
use crate::rate_limit::{Rate, RateLimiter, RateSubject};
use crate::request::{Caller, InboundMessage, Refusal};
use crate::setup::Setup;
use crate::stream::Broadcast;
use crate::timer;

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
        }
    }
}

/// Whose turns a new turn counts among.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnCount {
    pub(crate) user: bool,
    pub(crate) key: bool,
}

impl TurnCount {
    /// A direct call is limited as a request of its user; only the key counts it as a turn.
    pub(crate) const DIRECT_CALL: Self = Self { user: false, key: true };

    /// A message that starts a turn. An OpenAI client may serve many people with one key, so there the key counts; the operator's
    /// credential is no key.
    pub(crate) fn of(caller: &Caller, channel: &str) -> Self {
        Self { user: channel != OPENAI || (caller.key_id.is_none() && !caller.admin), key: true }
    }
}

const fn too_many(retry_after_ms: u64) -> Refusal {
    Refusal::TooMany { retry_after_ms }
}

/// How often a person is told that they wrote too many messages.
const ONE_NOTICE: Rate = Rate::of_turns(1);

/// The channel of OpenAI clients.
const OPENAI: &str = "openai";

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
    /// When the loop that sends rows of the outbox last looked for some, in Unix milliseconds; 0: never.
    pub(crate) outbox_progress_ms: AtomicI64,
    /// Names this process in leases.
    pub(crate) owner: String,
    /// Ends the background loops.
    pub(crate) stopping: Cancel,
    /// Turns that had not started at the last recovery scan.
    pub(crate) unstarted: Mutex<BTreeSet<Uuid>>,
    setup: RwLock<Arc<Setup>>,
    turn_rates: RateLimiter,
    /// Who was told lately that they wrote too many messages.
    told: RateLimiter,
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
            outbox_progress_ms: AtomicI64::default(),
            owner: store.clock.new_id().to_string(),
            stopping: Cancel::default(),
            unstarted: Mutex::default(),
            setup: RwLock::new(Arc::new(setup)),
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

    /// Whether the process has capacity, and whether the sender of this message may start another turn. A message that only brings
    /// the awaited results of the client's tools continues an earlier turn, and is refused if another message continued it first. A channel
    /// with addresses cannot refuse a message: above the limit its turn is stored and ends at once.
    pub(crate) async fn admit_message(&self, message: &mut InboundMessage) -> Result<(), Refusal> {
        let counted = TurnCount::of(&message.caller, &message.channel);
        let only_results = message.message.is_empty() && message.parts.is_empty() && !message.results.is_empty();
        // Where nothing is counted and the continued turn is known, the answer would change nothing.
        if only_results && (message.after.is_none() || self.is_limited(&message.caller, counted)) {
            let principal = &message.caller.principal;
            let call_ids = message.results.iter().map(|result| result.call_id.clone()).collect();
            let awaiting = self.store.clients.conversation_awaiting(principal.tenant_id, principal.user_id.clone(), call_ids).await?;
            if let Some(found) = awaiting.filter(|found| Some(found.conversation_id) == message.conversation_id) {
                message.after.get_or_insert(found.turn_id);
                return self.check_place();
            }
        }
        let Some(channel) = &mut message.inbound else { return self.admit(&message.caller, counted).await };
        self.check_place()?;
        if let Err(retry_after_ms) = self.take_turn(&message.caller, counted).await {
            let principal = &message.caller.principal;
            let told = self.told.take(principal.tenant_id, RateSubject::User(principal.user_id.clone()), ONE_NOTICE).await;
            channel.inbound.over_limit = Some(OverLimit { retry_after_ms, silent: told.is_err() });
        }
        Ok(())
    }

    /// Whether the process has capacity, and whether this caller may start another turn.
    pub(crate) async fn admit(&self, caller: &Caller, counted: TurnCount) -> Result<(), Refusal> {
        self.check_place()?;
        self.take_turn(caller, counted).await.map_err(too_many)
    }

    /// Counts one turn; the error is how many milliseconds to wait.
    async fn take_turn(&self, caller: &Caller, counted: TurnCount) -> Result<(), u64> {
        for (subject, rate) in self.counted(caller, counted) {
            self.turn_rates.take(caller.principal.tenant_id, subject, rate).await?;
        }
        Ok(())
    }

    /// Whether the process has a place for another turn.
    pub(crate) fn check_place(&self) -> Result<(), Refusal> {
        let full = self.running.len() >= self.limits.queue || self.is_draining();
        if full { Err(Refusal::Busy { retry_after_ms: 1000 }) } else { Ok(()) }
    }

    /// Whether the limits let this caller start a turn on a channel now, without counting one.
    pub(crate) fn check_turn_limits(&self, caller: &Caller, channel: &str) -> Result<(), Refusal> {
        let mut counted = self.counted(caller, TurnCount::of(caller, channel));
        counted.try_for_each(|(subject, rate)| self.turn_rates.check(caller.principal.tenant_id, subject, rate)).map_err(too_many)
    }

    /// Whether a turn of this caller counts towards a limit.
    pub(crate) fn is_limited(&self, caller: &Caller, counted: TurnCount) -> bool {
        self.counted(caller, counted).next().is_some()
    }

    /// The subjects whose turns are limited. The user first: what one user is refused must not use up the key that users share.
    fn counted(&self, caller: &Caller, counted: TurnCount) -> impl Iterator<Item = (RateSubject, Rate)> {
        let Limits { turns_per_minute_user: of_user, turns_per_minute_key: of_key, .. } = *self.limits;
        let user = (counted.user && of_user > 0).then(|| RateSubject::User(caller.principal.user_id.clone()));
        let key = caller.key_id.filter(|_| counted.key && of_key > 0).map(RateSubject::Key);
        user.map(|user| (user, Rate::of_turns(of_user))).into_iter().chain(key.map(|key| (key, Rate::of_turns(of_key))))
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
        TurnScope {
            services: self.turn_services.clone(),
            journal: Journal::new(self.journals.clone(), Arc::clone(&running), audience, deadline),
            texts: Texts::of(&principal.locale),
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
        }
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
