//! The doors of the house: a message, one tool, a retry, a stop.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;
use werkruf_contract::{ApprovalStatus, Cancel, Clock, Init, Texts, TurnStatus, Uuid};
use werkruf_llm::Provider;
use werkruf_llm::prices::PriceTable;
use werkruf_store::{
    ApprovalFilter, ApprovalRow, Approvals, ClientRequests, Cluster, Fence, Page, People, Records, StoreError, StreamKey, Streams, Turns,
    crash,
};

use crate::admission::Admission;
use crate::assistant::Assistants;
use crate::dedupe::InFlight;
use crate::feed::Subscription;
use crate::ground::{Ground, Live};
use crate::hub::{Hub, PartialAnswer, SubscribeOptions};
use crate::inbound::{AcceptedTurn, Caller, InboundMessage, Refusal};
use crate::lane::Lanes;
use crate::limits::Limits;
use crate::registry::Registry;
use crate::safety::SafetyProfile;
use crate::stir::Stir;
use crate::timer;
use crate::waiting::Waiting;

const RELEASE_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// What the house is built from.
pub struct Services {
    pub turns: Arc<dyn Turns>,
    pub records: Arc<dyn Records>,
    pub people: Arc<dyn People>,
    pub approvals: Arc<dyn Approvals>,
    pub clients: Arc<dyn ClientRequests>,
    pub streams: Arc<dyn Streams>,
    pub cluster: Arc<dyn Cluster>,
    pub provider: Arc<dyn Provider>,
    pub clock: Clock,
    pub limits: Limits,
}

/// What a reload replaces. A running turn keeps the one it began with.
pub struct Setup {
    pub registry: Registry,
    pub assistants: Assistants,
    pub safety: HashMap<String, SafetyProfile>,
    /// What requests cost.
    pub prices: Arc<PriceTable>,
}

/// Runs turns. Clones share everything.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) house: Arc<House>,
}

pub(crate) struct House {
    pub(crate) parts: Services,
    pub(crate) limits: Arc<Limits>,
    setup: RwLock<Arc<Setup>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) lanes: Lanes,
    in_flight: InFlight,
    pub(crate) tasks: TaskTracker,
    /// In order, so that stopping them all is the same twice.
    pub(crate) live: Mutex<BTreeMap<Uuid, Arc<Live>>>,
    admission: Admission,
    /// Model requests at once, where limited.
    pub(crate) model_slots: Option<Arc<Semaphore>>,
    /// Names this process in leases.
    pub(crate) owner: String,
    draining: AtomicBool,
    /// Ends the loops that are no turns.
    pub(crate) stopping: Cancel,
    /// Wakes whoever waits for what other processes write.
    pub(crate) stir: Stir,
    /// Turns that had not begun when the recovery scan last looked.
    pub(crate) waiting: Mutex<BTreeSet<Uuid>>,
}

impl Runtime {
    /// Puts the house together.
    pub fn new(parts: Services, setup: Setup) -> Self {
        let house = House {
            limits: Arc::new(parts.limits.clone()),
            setup: RwLock::new(Arc::new(setup)),
            hub: Arc::new(Hub::new(parts.cluster.lease_ttl().is_some())),
            lanes: Lanes::default(),
            in_flight: InFlight::default(),
            tasks: TaskTracker::new(),
            live: Mutex::new(BTreeMap::new()),
            admission: Admission::new(),
            model_slots: (parts.limits.model_concurrency > 0).then(|| Arc::new(Semaphore::new(parts.limits.model_concurrency))),
            owner: parts.clock.new_id().to_string(),
            draining: AtomicBool::new(false),
            stopping: Cancel::default(),
            stir: Stir::default(),
            waiting: Mutex::default(),
            parts,
        };
        Self { house: Arc::new(house) }
    }

    /// New turns use this from now on.
    pub fn reload(&self, setup: Setup) {
        *self.house.setup.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(setup);
    }

    /// What new turns use.
    pub fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.house.setup.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a message: when this resolves it is durable, and its turn will reach an end.
    pub async fn chat(&self, inbound: InboundMessage) -> Result<AcceptedTurn, Refusal> {
        let house = &self.house;
        house.admit(&inbound.caller)?;
        let setup = self.setup();
        if let Some(name) = &inbound.assistant {
            house.assistant_named(&setup, name, &inbound.caller)?.speaks_on(&inbound.channel)?;
        }
        let (turn_id, created) = (house.parts.clock.new_id(), inbound.conversation_id.is_none());
        let conversation_id = inbound.conversation_id.unwrap_or_else(|| house.parts.clock.new_id());
        let ticket = house.lanes.enter(conversation_id);
        let init = Init { chat_id: conversation_id, conversation_id, turn_id, created };
        let (tell, told) = oneshot::channel();
        // Boxed: what it needs is gone before the turn begins, which lasts far longer.
        let taking = Box::pin(Arc::clone(house).take_in(setup, inbound, init, ticket));
        // A task of its own from here on: a client that leaves now must not leave a stored message behind that nobody works on.
        house.tasks.spawn(async move {
            match taking.await {
                Ok((accepted, begun, fence, state)) => {
                    let _ = tell.send(Ok(accepted));
                    begun.run(fence, state).await;
                }
                Err(refusal) => drop(tell.send(Err(refusal))),
            }
        });
        told.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the message was not taken".to_owned()).into()))
    }

    /// Listens to a conversation from now on; also the text that is being written right now. Turns tell their events as soon as
    /// they are stored, each its own in order: a number left out is told later or stands in the rows only.
    pub fn subscribe(&self, stream: StreamKey, watch: SubscribeOptions) -> (Subscription, Option<PartialAnswer>) {
        self.house.hub.watch(stream, watch)
    }

    /// Asks a turn to stop; false when it has ended already.
    pub async fn cancel_turn(&self, tenant_id: Uuid, turn_id: Uuid) -> Result<bool, Refusal> {
        let asked = self.house.parts.turns.request_cancel(tenant_id, turn_id, self.house.parts.clock.now()).await?;
        if asked {
            if let Some(live) = self.house.live.lock().unwrap_or_else(PoisonError::into_inner).get(&turn_id) {
                live.cancel_all();
            }
            self.house.end_waiting(tenant_id, turn_id).await?;
            self.house.parts.cluster.notify();
            // One that waits for a person's word has nobody to hear the wish.
            self.wake(tenant_id, turn_id).await?;
        }
        Ok(asked)
    }

    /// Stops one call; false when it is not running.
    pub async fn cancel_call(&self, tenant_id: Uuid, call_id: Uuid) -> Result<bool, Refusal> {
        let call = self.house.parts.records.call(tenant_id, call_id).await?.ok_or(Refusal::UnknownCall)?;
        let live = self.house.live.lock().unwrap_or_else(PoisonError::into_inner).get(&call.turn_id).cloned();
        if live.is_some_and(|live| live.cancel_call(call_id)) {
            return Ok(true);
        }
        let filter = ApprovalFilter { turn_id: Some(call.turn_id), status: Some(ApprovalStatus::Pending), roles: None };
        let Some(approval) = self.house.wish_for(tenant_id, call_id, filter).await? else {
            // It may run in another process.
            let asked = self.house.parts.cluster.request_call_cancel(tenant_id, call_id).await?;
            self.house.parts.cluster.notify();
            return Ok(asked);
        };
        match self.settle(tenant_id, approval.id, ApprovalStatus::Canceled, "canceled".to_owned()).await {
            Ok(_) => Ok(true),
            Err(Refusal::Conflict { .. }) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether no new turns are taken.
    pub fn is_draining(&self) -> bool {
        self.house.draining.load(Ordering::SeqCst)
    }

    /// Takes nothing new, lets running turns finish for a while, releases the rest (they go on after the next start),
    /// ends all streams.
    pub async fn drain(&self) {
        let house = &self.house;
        house.draining.store(true, Ordering::SeqCst);
        house.stopping.raise();
        house.tasks.close();
        crash::point("in_drain");
        if tokio::time::timeout(house.limits.drain(), house.tasks.wait()).await.is_err() {
            for live in house.live.lock().unwrap_or_else(PoisonError::into_inner).values() {
                live.released.raise();
            }
            crash::point("in_release");
            // A released turn only has to give its lease back.
            let _ = tokio::time::timeout(RELEASE_WAIT, house.tasks.wait()).await;
        }
        house.hub.close();
    }
}

impl House {
    /// Whether there is room, and whether this person may begin another turn.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<(), Refusal> {
        let busy = self.live.lock().unwrap_or_else(PoisonError::into_inner).len() >= self.limits.queue;
        if busy || self.draining.load(Ordering::SeqCst) {
            return Err(Refusal::Busy { retry_after_ms: 1000 });
        }
        let principal = &caller.principal;
        self.admission
            .admit(&self.limits, principal.tenant_id, &principal.user_id, caller.key_id, self.parts.clock.now())
            .map_err(|retry_after_ms| Refusal::TooMany { retry_after_ms })
    }

    pub(crate) fn assistant_named<'a>(&self, setup: &'a Setup, name: &str, caller: &Caller) -> Result<&'a crate::Assistant, Refusal> {
        let tenant = caller.principal.tenant_id.to_string();
        setup.assistants.find(name, &[&tenant, &caller.principal.tenant_slug]).ok_or_else(|| Refusal::Invalid {
            code: "invalid_request",
            message: format!("there is no assistant named \"{name}\"; leave `assistant` out for the default one"),
        })
    }

    /// What people are asked about this call; a turn may wait for more words than one page holds.
    async fn wish_for(&self, tenant_id: Uuid, call_id: Uuid, filter: ApprovalFilter) -> Result<Option<ApprovalRow>, StoreError> {
        let mut page = Page::default();
        loop {
            let batch = self.parts.approvals.approvals(tenant_id, filter.clone(), page).await?;
            let last = usize::try_from(page.limit).is_ok_and(|limit| batch.len() < limit);
            page.after = batch.last().map(|approval| approval.id);
            let found = batch.into_iter().find(|approval| approval.call_id == call_id);
            if found.is_some() || last || page.after.is_none() {
                return Ok(found);
            }
        }
    }

    /// A turn of this process, until the answer is dropped.
    pub(crate) fn go_live(self: &Arc<Self>, tenant_id: Uuid, turn_id: Uuid) -> Alive {
        let live = Arc::new(Live::default());
        self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(turn_id, Arc::clone(&live));
        Alive { house: Arc::clone(self), tenant_id, turn_id, live }
    }

    /// Ends a turn that waits for its place in whatever process, if it does. One that waits here ends by itself.
    async fn end_waiting(&self, tenant_id: Uuid, turn_id: Uuid) -> Result<(), StoreError> {
        if !self.is_shared() {
            return Ok(());
        }
        let Some(turn) = self.parts.records.turn(tenant_id, turn_id).await?.filter(|turn| turn.status == TurnStatus::Accepted) else {
            return Ok(());
        };
        let stream_id = turn.conversation_id.unwrap_or(turn_id);
        let principal = self.parts.people.principal(tenant_id, turn.user_id).await?;
        let words = Texts::of(principal.as_ref().map_or("", |person| &person.locale));
        Waiting { house: self, tenant_id, turn_id, stream_id, live: None }.cancel(&words).await.map(|_| ())
    }

    /// The same for a turn that is stored already; `None` while somebody here works on it.
    pub(crate) fn revive(self: &Arc<Self>, tenant_id: Uuid, turn_id: Uuid) -> Option<Alive> {
        let mut lives = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let std::collections::btree_map::Entry::Vacant(place) = lives.entry(turn_id) else { return None };
        let live = Arc::clone(place.insert(Arc::new(Live::default())));
        Some(Alive { house: Arc::clone(self), tenant_id, turn_id, live })
    }

    /// Tells whoever works on the turn here to look again once it has stopped; false when nobody does.
    pub(crate) fn told_to_look_again(&self, turn_id: Uuid) -> bool {
        let lives = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        lives.get(&turn_id).map(|live| live.look_again.raise()).is_some()
    }

    /// The fixed part of a turn.
    pub(crate) fn ground(
        &self,
        setup: Arc<Setup>,
        caller: Caller,
        turn_id: Uuid,
        conversation_id: Option<Uuid>,
        live: Arc<Live>,
    ) -> Ground {
        let fence = Fence {
            tenant_id: caller.principal.tenant_id,
            stream_id: conversation_id.unwrap_or(turn_id),
            owner: self.owner.clone(),
            epoch: 0,
        };
        let words = Texts::of(&caller.principal.locale);
        Ground {
            turns: Arc::clone(&self.parts.turns),
            people: Arc::clone(&self.parts.people),
            records: Arc::clone(&self.parts.records),
            cluster: Arc::clone(&self.parts.cluster),
            stir: self.stir.clone(),
            hub: Arc::clone(&self.hub),
            tasks: self.tasks.clone(),
            in_flight: self.in_flight.clone(),
            clock: self.parts.clock.clone(),
            limits: Arc::clone(&self.limits),
            setup,
            caller,
            turn_id,
            conversation_id,
            fence,
            live,
            deadline: timer::after(self.limits.turn()),
            debug: false,
            words,
        }
    }
}

/// Proof that a turn is worked on here.
pub(crate) struct Alive {
    house: Arc<House>,
    tenant_id: Uuid,
    turn_id: Uuid,
    pub(crate) live: Arc<Live>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.house.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.turn_id);
        // A decision that came while the turn was on its way to wait for it.
        if self.live.look_again.is_raised()
            && let Ok(handle) = tokio::runtime::Handle::try_current()
        {
            let (runtime, tenant_id, turn_id) = (Runtime { house: Arc::clone(&self.house) }, self.tenant_id, self.turn_id);
            self.house.tasks.spawn_on(async move { drop(runtime.wake(tenant_id, turn_id).await) }, &handle);
        }
    }
}
