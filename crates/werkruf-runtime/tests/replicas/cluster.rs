//! One database and the replicas on it. Each replica has its own tokio runtime, so that it can end like a killed process.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use serde_json::json;
use werkruf_contract::{Cancel, Clock, EventType, Principal, ToolContext, Uuid};
use werkruf_runtime::{
    Assistants, BudgetBook, Caller, ChannelMessage, Channels, DirectCall, Idempotency, Inbound, InboundMessage, Invoke, Limits, LiveEvent,
    ModelAccounts, ModelGate, ModelProviders, Notification, Pins, Registry, ReplyTo, Runtime, Services, Setup, SubscribeOptions,
    Subscription, Webhook,
};
use werkruf_store::{
    InboxEntry, Installation, ManagePeople, NewUser, People, PeopleBatch, PostgresOptions, PostgresStore, Records, Store, StreamKey,
    TurnRow,
};

use crate::fake_channel::FakeChannel;
use crate::fresh::fresh_database;
use crate::scripted::{Model, Tool};

pub const TENANT: Uuid = Uuid::from_u128(7);
pub const TTL: Duration = Duration::from_secs(4);
/// The time limit for an expected event; long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Cluster {
    pub url: String,
    pub clock: Clock,
    /// Raised to release the model and the tool.
    pub gate: Cancel,
    pub calls: Arc<AtomicUsize>,
    pub poll_only: bool,
    /// Shared by all replicas.
    pub channel: Arc<FakeChannel>,
}

pub struct Replica {
    pub runtime: Runtime,
    pub store: Arc<PostgresStore>,
    pub principal: Arc<Principal>,
    tokio: Option<tokio::runtime::Runtime>,
}

impl Cluster {
    pub fn new(poll_only: bool) -> Self {
        Self {
            url: fresh_database(),
            clock: Clock::system(0),
            gate: Cancel::default(),
            calls: Arc::default(),
            poll_only,
            channel: Arc::default(),
        }
    }

    /// Starts a replica.
    pub fn replica(&self) -> Replica {
        self.replica_with_gate(&self.gate)
    }

    /// Starts a replica whose model never waits.
    pub fn quick_replica(&self) -> Replica {
        let open = Cancel::default();
        open.raise();
        self.replica_with_gate(&open)
    }

    fn replica_with_gate(&self, gate: &Cancel) -> Replica {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut options = PostgresOptions::new(self.url.clone());
        (options.lease_ttl, options.poll_only, options.pool_size) = (TTL, self.poll_only, 8);
        let clock = self.clock.clone();
        let (store, principal) = std::thread::scope(|scope| {
            let opened = scope.spawn(|| {
                tokio.block_on(async {
                    let store = PostgresStore::open(options, &clock, &[]).await.unwrap();
                    let principal = create_user(&store, &clock).await;
                    (store, principal)
                })
            });
            opened.join().unwrap()
        });
        let models = ModelAccounts {
            gate: Arc::new(ModelGate::new(
                ModelProviders { chat: Arc::new(Model { gate: gate.clone() }), web_search: None, embeddings: None },
                0,
            )),
            usage: store.clone(),
            budgets: Arc::new(BudgetBook::new(store.clone())),
            prices: Default::default(),
            metrics: Default::default(),
            clock: self.clock.clone(),
        };
        let limits = Limits { drain_ms: 500, turns_per_minute_user: 0, turns_per_minute_key: 0, ..Limits::default() };
        let services = Services::new(&(store.clone() as Arc<dyn Store>), models, self.clock.clone(), limits);
        let mut registry = Registry::default();
        registry.add_object(Arc::new(Tool::new(&self.calls, &self.gate))).unwrap();
        let events = vec![Notification::BudgetThreshold, Notification::ModelDown, Notification::Quota];
        let watcher = Webhook { name: "watcher".to_owned(), tenant: None, events };
        let setup = Setup {
            registry,
            assistants: Assistants::new(Vec::new()),
            channels: Channels::new(vec![self.channel.clone()], vec![watcher]),
            safety: Default::default(),
            prices: Default::default(),
            four_eyes: false,
            provider_role: "admin".to_owned(),
            redaction: Default::default(),
            log_arguments: false,
            alerts: Default::default(),
        };
        let runtime = Runtime::new(services, setup);
        let (background, checkpoints, sender) = (runtime.clone(), runtime.clone(), runtime.clone());
        tokio.spawn(async move { sender.run_outbox().await });
        tokio.spawn(async move { background.run_background().await });
        tokio.spawn(async move { checkpoints.save_partial_text().await });
        Replica { runtime, store, principal, tokio: Some(tokio) }
    }
}

async fn create_user(store: &PostgresStore, clock: &Clock) -> Arc<Principal> {
    store.ensure_tenant(TENANT, "demo".to_owned(), clock.now()).await.unwrap();
    let ada = NewUser {
        id: 1,
        first_name: "Ada".to_owned(),
        last_name: "L".to_owned(),
        email: None,
        phone: None,
        whatsapp_user_id: None,
        external_id: None,
        locale: "en-US".to_owned(),
        time_zone: None,
        branch_id: None,
        role_ids: Vec::new(),
        active: Some(true),
    };
    store.put_people(TENANT, PeopleBatch { users: vec![ada], ..PeopleBatch::default() }).await.unwrap();
    store.principal(TENANT, "1".to_owned()).await.unwrap().unwrap()
}

impl Replica {
    /// Runs a task on the runtime of this replica, so that it ends when the replica is killed.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.tokio.as_ref().unwrap().spawn(work).await.unwrap()
    }

    /// Starts a task that ends when the replica is killed.
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.tokio.as_ref().unwrap().spawn(work));
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }

    pub fn inbound(&self, message: &str, conversation_id: Option<Uuid>, key: Option<&str>) -> InboundMessage {
        InboundMessage {
            caller: self.caller(),
            conversation_id,
            message: message.to_owned(),
            assistant: None,
            channel: "web".to_owned(),
            locale: None,
            debug: false,
            idempotency: key.map(|key| Idempotency { route: "chat".to_owned(), key: key.to_owned(), fingerprint: message.to_owned() }),
            inbound: None,
            context: ToolContext::default(),
            parts: Vec::new(),
            client: None,
            results: Vec::new(),
            after: None,
            held: None,
        }
    }

    /// A message of a channel that stands for a call.
    pub fn keyword(&self, tool: &str) -> InboundMessage {
        let channel = || "chat".to_owned();
        let reply_to = ReplyTo { channel: channel(), account: "1".to_owned(), address: "ada".to_owned() };
        let inbound =
            Inbound { reply_to, direct: Some(DirectCall { tool: tool.to_owned(), arguments: json!({"n": 1}) }), over_limit: None };
        let inbox = InboxEntry {
            channel: channel(),
            account: "1".to_owned(),
            external_id: "m1".to_owned(),
            fingerprint: String::new(),
            expires_at: jiff::Timestamp::MAX,
        };
        InboundMessage { inbound: Some(Box::new(ChannelMessage { inbound, inbox })), ..self.inbound(tool, None, None) }
    }

    fn caller(&self) -> Caller {
        Caller {
            principal: Arc::clone(&self.principal),
            key_id: None,
            credential: "operator".to_owned(),
            retried_by: None,
            pins: Pins::default(),
            admin: false,
        }
    }

    pub fn pay(&self, clock: &Clock) -> Invoke {
        let id = clock.new_id();
        let context = ToolContext::new(TENANT, id.to_string(), id, clock.now(), format!("run_{id}"));
        Invoke {
            caller: self.caller(),
            tool: "pay".to_owned(),
            input: json!({"n": 1}),
            conversation_id: None,
            context,
            idempotency: None,
            observer: None,
        }
    }

    pub fn subscribe(&self, stream_id: Uuid, turn_id: Uuid) -> Subscription {
        let stream = StreamKey { tenant_id: TENANT, stream_id };
        self.runtime.subscribe(stream, SubscribeOptions { turn_id: Some(turn_id), debug: false, after: 0 })
    }

    pub async fn turn(&self, turn_id: Uuid) -> TurnRow {
        let store = Arc::clone(&self.store);
        self.run(async move { store.turn(TENANT, turn_id).await.unwrap().unwrap() }).await
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for an event of this kind; returns it and the numbers of all events up to it.
pub async fn wait_for(events: &mut Subscription, wanted: EventType) -> (LiveEvent, Vec<i64>) {
    let mut numbers = Vec::new();
    let work = async {
        loop {
            let event = events.recv().await.unwrap_or_else(|| panic!("the stream ended before {wanted}, after {numbers:?}"));
            numbers.extend(event.seq);
            if event.kind == wanted {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(TIMEOUT, work).await;
    (event.unwrap_or_else(|_| panic!("{wanted} was not sent")), numbers)
}
