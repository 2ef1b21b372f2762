//! The doors of the house: a message, one tool, a retry, a stop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;
use werkruf_contract::{Clock, Deadline, EventType, Init, State, ToolContext, Uuid};
use werkruf_llm::{Message, Provider};
use werkruf_store::{
    ConversationRef, Fence, InboxEntry, NewEvent, NewMessage, OpenTurn, Opened, People, Records, StoreError, TurnKind, Turns,
};

use crate::admission::Admission;
use crate::assistant::Assistants;
use crate::dedupe::InFlight;
use crate::ground::{Ground, Live, json};
use crate::history;
use crate::hub::{Hub, LiveEvent, Watch};
use crate::inbound::{Accepted, Caller, Idempotency, Inbound, Refusal};
use crate::lane::{Lanes, Ticket};
use crate::limits::Limits;
use crate::registry::Registry;
use crate::safety::SafetyProfile;
use crate::turn::{Progress, Turn};

/// How long an API key is remembered.
const IDEMPOTENCY_WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
const TITLE_CHARS: usize = 80;

/// What the house is built from.
pub struct Parts {
    pub turns: Arc<dyn Turns>,
    pub records: Arc<dyn Records>,
    pub people: Arc<dyn People>,
    pub provider: Arc<dyn Provider>,
    pub clock: Clock,
    pub limits: Limits,
}

/// What a reload replaces. A running turn keeps the one it began with.
pub struct Setup {
    pub registry: Registry,
    pub assistants: Assistants,
    pub safety: HashMap<String, SafetyProfile>,
}

/// Runs turns. Clones share everything.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) house: Arc<House>,
}

pub(crate) struct House {
    pub(crate) parts: Parts,
    pub(crate) limits: Arc<Limits>,
    setup: RwLock<Arc<Setup>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) lanes: Lanes,
    in_flight: InFlight,
    pub(crate) tasks: TaskTracker,
    live: Mutex<HashMap<Uuid, Arc<Live>>>,
    admission: Admission,
    /// Model requests at once, where limited.
    model_slots: Option<Arc<Semaphore>>,
    /// Names this process in leases.
    pub(crate) owner: String,
    draining: AtomicBool,
}

impl Runtime {
    /// Puts the house together.
    pub fn new(parts: Parts, setup: Setup) -> Self {
        let house = House {
            limits: Arc::new(parts.limits.clone()),
            setup: RwLock::new(Arc::new(setup)),
            hub: Arc::new(Hub::default()),
            lanes: Lanes::default(),
            in_flight: InFlight::default(),
            tasks: TaskTracker::new(),
            live: Mutex::new(HashMap::new()),
            admission: Admission::new(),
            model_slots: (parts.limits.model_concurrency > 0).then(|| Arc::new(Semaphore::new(parts.limits.model_concurrency))),
            owner: parts.clock.new_id().to_string(),
            draining: AtomicBool::new(false),
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
    pub async fn chat(&self, inbound: Inbound) -> Result<Accepted, Refusal> {
        let house = &self.house;
        house.admit(&inbound.caller)?;
        let setup = self.setup();
        if let Some(name) = &inbound.assistant {
            house.assistant_named(&setup, name, &inbound.caller)?;
        }
        let (turn_id, created) = (house.parts.clock.new_id(), inbound.conversation_id.is_none());
        let conversation_id = inbound.conversation_id.unwrap_or_else(|| house.parts.clock.new_id());
        let ticket = house.lanes.enter(conversation_id);
        let init = Init { chat_id: conversation_id, conversation_id, turn_id, created };
        let open = house.open_chat(&inbound, &init, ticket.is_first());
        let (fence, seqs, state, assistant) = match house.parts.turns.open_turn(open).await? {
            Opened::Stored { fence, event_seqs, state, assistant } => (fence, event_seqs, state, assistant),
            Opened::Duplicate { turn_id, same_body } => return Err(Refusal::Duplicate { turn_id, same_body }),
            Opened::UnknownConversation => return Err(Refusal::UnknownConversation),
        };
        let events = house.hub.watch(conversation_id, Watch { turn_id: Some(turn_id), debug: inbound.debug });
        let heard = LiveEvent { seq: seqs.first().copied(), kind: EventType::Init, turn_id, data: Arc::from(json(&init)) };
        house.hub.publish(conversation_id, &heard);
        let live = house.go_live(turn_id);
        let begun = Begun { house: Arc::clone(house), setup, inbound, init, live, ticket, assistant };
        house.tasks.spawn(begun.run(fence, state));
        Ok(Accepted { conversation_id, turn_id, created, events })
    }

    /// Listens to a conversation from now on.
    pub fn watch(&self, stream_id: Uuid, watch: Watch) -> mpsc::Receiver<LiveEvent> {
        self.house.hub.watch(stream_id, watch)
    }

    /// Asks a turn to stop; false when it has ended already.
    pub async fn cancel_turn(&self, tenant_id: Uuid, turn_id: Uuid) -> Result<bool, Refusal> {
        let asked = self.house.parts.turns.request_cancel(tenant_id, turn_id, self.house.parts.clock.now()).await?;
        if asked && let Some(live) = self.house.live.lock().unwrap_or_else(PoisonError::into_inner).get(&turn_id) {
            live.cancel_all();
        }
        Ok(asked)
    }

    /// Stops one call; false when it is not running.
    pub async fn cancel_call(&self, tenant_id: Uuid, call_id: Uuid) -> Result<bool, Refusal> {
        let call = self.house.parts.records.call(tenant_id, call_id).await?.ok_or(Refusal::UnknownCall)?;
        let live = self.house.live.lock().unwrap_or_else(PoisonError::into_inner).get(&call.turn_id).cloned();
        Ok(live.is_some_and(|live| live.cancel_call(call_id)))
    }

    /// Whether no new turns are taken.
    pub fn is_draining(&self) -> bool {
        self.house.draining.load(Ordering::SeqCst)
    }

    /// Takes nothing new, lets running turns finish for a while, stops the rest, ends all streams.
    pub async fn drain(&self) {
        let house = &self.house;
        house.draining.store(true, Ordering::SeqCst);
        house.tasks.close();
        if tokio::time::timeout(house.limits.drain(), house.tasks.wait()).await.is_err() {
            for live in house.live.lock().unwrap_or_else(PoisonError::into_inner).values() {
                live.cancel_all();
            }
            // A canceled turn only has to write that it was.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(2), house.tasks.wait()).await;
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

    fn assistant_named<'a>(&self, setup: &'a Setup, name: &str, caller: &Caller) -> Result<&'a crate::Assistant, Refusal> {
        let tenant = caller.principal.tenant_id.to_string();
        setup.assistants.find(name, &[&tenant, &caller.principal.tenant_slug]).ok_or_else(|| Refusal::Invalid {
            code: "invalid_request",
            message: format!("there is no assistant named \"{name}\"; leave `assistant` out for the default one"),
        })
    }

    /// Commit A.
    fn open_chat(&self, inbound: &Inbound, init: &Init, start: bool) -> OpenTurn {
        let now = self.parts.clock.now();
        let conversation = if init.created {
            let title = inbound.message.chars().take(TITLE_CHARS).collect();
            ConversationRef::New { id: init.conversation_id, channel: inbound.channel.clone(), title }
        } else {
            ConversationRef::Existing { id: init.conversation_id, any_user: inbound.caller.admin }
        };
        OpenTurn {
            tenant_id: inbound.caller.principal.tenant_id,
            user_id: inbound.caller.principal.user_id.clone(),
            turn_id: init.turn_id,
            kind: TurnKind::Chat,
            conversation,
            assistant: inbound.assistant.clone().unwrap_or_else(|| "default".to_owned()),
            key_id: inbound.caller.key_id,
            message: Some(NewMessage {
                id: self.parts.clock.new_id(),
                role: "user",
                content: inbound.message.clone(),
                tool_calls: None,
                tool_call_id: None,
                tool_name: None,
                status: None,
                metadata: None,
                tokens: None,
            }),
            inbox: inbound.idempotency.as_ref().map(|key| inbox_entry("chat", &inbound.caller, key, now)),
            start,
            owner: self.owner.clone(),
            calls: Vec::new(),
            events: vec![NewEvent { kind: EventType::Init, data: json(init) }],
            now,
        }
    }

    pub(crate) fn go_live(&self, turn_id: Uuid) -> Arc<Live> {
        let live = Arc::new(Live::default());
        self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(turn_id, Arc::clone(&live));
        live
    }

    pub(crate) fn end_live(&self, turn_id: Uuid) {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&turn_id);
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
        Ground {
            turns: Arc::clone(&self.parts.turns),
            people: Arc::clone(&self.parts.people),
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
            deadline: Deadline::after(self.limits.turn()),
            debug: false,
        }
    }
}

/// The key under which the inbox knows a request again: the route, and who made it.
pub(crate) fn inbox_entry(route: &str, caller: &Caller, key: &Idempotency, now: Timestamp) -> InboxEntry {
    InboxEntry {
        channel: "api".to_owned(),
        account: format!("{route}:{}", caller.principal.user_id),
        external_id: key.key.clone(),
        fingerprint: key.fingerprint.clone(),
        expires_at: now + IDEMPOTENCY_WINDOW,
    }
}

/// A stored message whose turn has not started yet.
struct Begun {
    house: Arc<House>,
    setup: Arc<Setup>,
    inbound: Inbound,
    init: Init,
    live: Arc<Live>,
    ticket: Ticket,
    assistant: String,
}

impl Begun {
    async fn run(mut self, fence: Option<Fence>, state: State) {
        let (house, turn_id) = (Arc::clone(&self.house), self.init.turn_id);
        self.ticket.called().await;
        match self.turn(fence, state).await {
            Ok(turn) => turn.run().await,
            Err(error) => tracing::error!(%turn_id, %error, "the turn could not start"),
        }
        house.end_live(turn_id);
        // The ticket goes last: only now may the next turn of the conversation begin.
        drop(self);
    }

    /// Everything a turn needs, read once.
    async fn turn(&self, fence: Option<Fence>, state: State) -> Result<Turn, StoreError> {
        let (house, inbound, conversation_id) = (&self.house, &self.inbound, self.init.conversation_id);
        let principal = &inbound.caller.principal;
        let tenant_id = principal.tenant_id;
        let (fence, state) = match fence {
            Some(fence) => (fence, state),
            None => {
                let fence = house.parts.turns.start_turn(tenant_id, self.init.turn_id, &house.owner, house.parts.clock.now()).await?;
                let conversation = house.parts.records.conversation(tenant_id, conversation_id).await?;
                (fence, conversation.map(|row| row.state).unwrap_or_default())
            }
        };
        let messages = if self.init.created {
            vec![Message::User { content: inbound.message.clone() }]
        } else {
            history::messages(&house.parts.turns.history(tenant_id, conversation_id).await?)
        };
        let name = inbound.assistant.as_deref().unwrap_or(&self.assistant);
        let assistant = house
            .assistant_named(&self.setup, name, &inbound.caller)
            .cloned()
            // The conversation's assistant may be gone from the file since; the default one goes on.
            .unwrap_or_else(|_| self.setup.assistants.find("default", &[]).cloned().unwrap_or_else(crate::Assistant::fallback));
        let offer = self.setup.registry.offer(&assistant);
        let locale = inbound.locale.clone().unwrap_or_else(|| principal.locale.clone());
        let today = today(&house.parts.clock, &principal.time_zone);
        let system = assistant.system(principal, &locale, today, &offer.functions, &state);
        let context = self.context(&locale);
        let mut ground =
            house.ground(Arc::clone(&self.setup), inbound.caller.clone(), self.init.turn_id, Some(conversation_id), Arc::clone(&self.live));
        ground.fence = fence;
        ground.debug = inbound.debug;
        Ok(Turn {
            ground: Arc::new(ground),
            provider: Arc::clone(&house.parts.provider),
            model_slots: house.model_slots.clone(),
            assistant,
            system,
            offer,
            context,
            state: Arc::new(state),
            messages: Arc::new(messages),
            created: self.init.created,
            progress: Progress::default(),
        })
    }

    fn context(&self, locale: &str) -> ToolContext {
        let turn_id = self.init.turn_id;
        let trace_id = self.inbound.trace_id.clone().unwrap_or_else(|| turn_id.to_string());
        let tenant_id = self.inbound.caller.principal.tenant_id;
        let mut context = ToolContext::new(tenant_id, trace_id, turn_id, self.house.parts.clock.now(), format!("run_{turn_id}"));
        context.locale = Some(locale.to_owned());
        context
    }
}

/// The date where the person is.
fn today(clock: &Clock, time_zone: &str) -> Date {
    let zone = TimeZone::get(time_zone).unwrap_or(TimeZone::UTC);
    clock.now().to_zoned(zone).date()
}
