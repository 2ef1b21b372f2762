//! One server on an SQLite file: three people, a tool that needs an approval, the channel, and a webhook.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio_util::task::TaskTracker;
use werkruf_contract::{Cancel, Clock, Principal, ToolContext, Uuid};
use werkruf_runtime::{
    AcceptedTurn, Assistants, Caller, ChannelMessage, Channels, DirectCall, Inbound, InboundMessage, Limits, ModelAccounts, ModelGate,
    ModelProviders, Notification, Pins, Registry, ReplyTo, Runtime, Services, Setup, Webhook,
};
use werkruf_store::{
    ChannelStore, InboxEntry, Installation, ManagePeople, NewOutboxRow, NewUser, Order, Outbox, OutboxFilter, OutboxRow, OutboxStatus,
    Page, People, PeopleBatch, Recipient, RecordedInbound, RoleWithPermissions, SqliteStore, Store,
};

use crate::fake_channel::FakeChannel;
use crate::scripted::{Model, Tool};

pub const TENANT: Uuid = Uuid::from_u128(7);
/// Long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);
pub const ADA: &str = "491701";
pub const BEN: &str = "491702";
pub const CLEO: &str = "491703";

pub struct Office {
    pub runtime: Runtime,
    pub store: Arc<SqliteStore>,
    pub channel: Arc<FakeChannel>,
    pub clock: Clock,
    /// Raised to let held answers of the model go on.
    pub gate: Cancel,
    pub tasks: TaskTracker,
    _folder: TempDir,
}

fn user(id: i64, first_name: &str, phone: &str, locale: &str, role: i64) -> NewUser {
    NewUser {
        id,
        first_name: first_name.to_owned(),
        last_name: "L".to_owned(),
        email: None,
        phone: Some(phone.to_owned()),
        whatsapp_user_id: None,
        external_id: None,
        locale: locale.to_owned(),
        time_zone: None,
        branch_id: None,
        role_ids: vec![role],
        active: Some(true),
    }
}

impl Office {
    pub async fn open() -> Self {
        let (folder, clock, gate) = (TempDir::new().unwrap(), Clock::system(0), Cancel::default());
        let store = SqliteStore::open(folder.path().join("w.db"), &clock, &[]).unwrap();
        store.ensure_tenant(TENANT, "demo".to_owned(), clock.now()).await.unwrap();
        let role = |id, name: &str| RoleWithPermissions { id, name: name.to_owned(), permissions: Vec::new() };
        let users = vec![user(1, "Ada", ADA, "en-US", 1), user(2, "Ben", BEN, "de-DE", 2), user(3, "Cleo", CLEO, "en-US", 2)];
        let people = PeopleBatch { branches: Vec::new(), roles: vec![role(1, "clerk"), role(2, "boss")], users };
        store.put_people(TENANT, people).await.unwrap();
        let (model, channel) = (Arc::new(Model { gate: gate.clone() }), Arc::new(FakeChannel::default()));
        let models = ModelAccounts {
            gate: Arc::new(ModelGate::new(ModelProviders { chat: model, web_search: None, embeddings: None }, 0)),
            usage: store.clone(),
            budgets: Default::default(),
            prices: Default::default(),
            metrics: Default::default(),
            clock: clock.clone(),
        };
        let limits = Limits { turns_per_minute_user: 0, turns_per_minute_key: 0, ..Limits::default() };
        let services = Services::new(&(store.clone() as Arc<dyn Store>), models, clock.clone(), limits);
        let mut registry = Registry::default();
        let open = Cancel::default();
        open.raise();
        let mut tool = Tool::new(&Arc::default(), &open);
        tool.spec.approval = vec!["boss".into()];
        registry.add_object(Arc::new(tool)).unwrap();
        // Nobody sends to it: its rows show what programs would be told.
        let watcher = Webhook { name: "watcher".to_owned(), tenant: Some("demo".to_owned()), events: Notification::ALL.to_vec() };
        let setup = Setup {
            registry,
            assistants: Assistants::new(Vec::new()),
            channels: Channels::new(vec![channel.clone()], vec![watcher]),
            safety: Default::default(),
            prices: Default::default(),
            four_eyes: true,
            provider_role: "admin".to_owned(),
            redaction: Default::default(),
            log_arguments: false,
            alerts: Default::default(),
        };
        let runtime = Runtime::new(services, setup);
        let sender = runtime.clone();
        let tasks = TaskTracker::new();
        tasks.spawn(async move { sender.run_outbox().await });
        Self { tasks, runtime, store, channel, clock, gate, _folder: folder }
    }

    pub async fn principal(&self, user_id: &str) -> Arc<Principal> {
        self.store.principal(TENANT, user_id.to_owned()).await.unwrap().unwrap()
    }

    /// A message of Ada on the channel.
    pub async fn write(&self, message: &str, direct: Option<DirectCall>, conversation_id: Option<Uuid>) -> AcceptedTurn {
        let reply_to = ReplyTo { channel: "fake".to_owned(), account: "desk".to_owned(), address: ADA.to_owned() };
        let inbox = InboxEntry {
            channel: "fake".to_owned(),
            account: "desk".to_owned(),
            external_id: self.clock.new_id().to_string(),
            fingerprint: String::new(),
            expires_at: self.clock.now() + Duration::from_secs(3600),
        };
        let caller = Caller {
            principal: self.principal("1").await,
            key_id: None,
            credential: format!("fake:{ADA}"),
            retried_by: None,
            pins: Pins::default(),
            admin: false,
        };
        let inbound = InboundMessage {
            caller,
            conversation_id,
            message: message.to_owned(),
            assistant: None,
            channel: "fake".to_owned(),
            locale: None,
            debug: false,
            idempotency: None,
            inbound: Some(Box::new(ChannelMessage { inbound: Inbound { reply_to, direct, over_limit: None }, inbox })),
            context: ToolContext::default(),
            parts: Vec::new(),
            client: None,
            results: Vec::new(),
            after: None,
            held: None,
        };
        self.runtime.chat(inbound).await.unwrap()
    }

    /// Writes a text for an address, to be sent by an account of the channel.
    pub async fn put(&self, account: &str, address: &str) {
        let lane = format!("fake:{account}:{address}");
        let (channel, account, address) = ("fake".to_owned(), account.to_owned(), address.to_owned());
        let row = NewOutboxRow {
            id: self.clock.new_id(),
            recipient: Recipient { channel: channel.clone(), account: account.clone(), address, user_id: None, lane },
            conversation_id: None,
            turn_id: None,
            approval_id: None,
            body: json!({"type": "text", "text": "Hello."}).to_string(),
            repeatable: false,
            dead: None,
            next_at: self.clock.now(),
        };
        let (external_id, fingerprint, now) = (row.id.to_string(), String::new(), self.clock.now());
        let inbox = InboxEntry { channel, account, external_id, fingerprint, expires_at: now + Duration::from_secs(3600) };
        let inbound = RecordedInbound { tenant_id: TENANT, inbox, rows: vec![row], notice: None, now };
        assert!(self.store.record_inbound(inbound).await.unwrap());
        self.runtime.wake_outbox();
    }

    /// The keyword whose call needs an approval.
    pub fn pay() -> Option<DirectCall> {
        Some(DirectCall { tool: "pay".to_owned(), arguments: json!({"n": 5}) })
    }

    /// All rows, the oldest first.
    pub async fn rows(&self) -> Vec<OutboxRow> {
        self.store.outbox(TENANT, OutboxFilter::default(), Page::of(200, Order::OldestFirst)).await.unwrap()
    }

    /// The rows for people, once this holds for them.
    pub async fn rows_once(&self, holds: impl Fn(&[OutboxRow]) -> bool) -> Vec<OutboxRow> {
        let mut seen = Vec::new();
        let work = async {
            loop {
                seen = self.rows().await;
                seen.retain(|row| row.recipient.channel == "fake");
                if holds(&seen) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| panic!("the rows never got there: {seen:#?}"));
        seen
    }

    /// The rows for people, once so many of them have arrived or are dead.
    pub async fn settled(&self, count: usize) -> Vec<OutboxRow> {
        self.rows_once(|rows| rows.iter().filter(|row| matches!(row.status, OutboxStatus::Sent | OutboxStatus::Dead)).count() >= count)
            .await
    }

    /// The types of the notifications for programs, in order.
    pub async fn notifications(&self) -> Vec<String> {
        let rows = self.rows().await.into_iter().filter(|row| row.recipient.channel == "webhook");
        rows.map(|row| serde_json::from_str::<serde_json::Value>(&row.body).unwrap()["event"]["type"].as_str().unwrap().to_owned())
            .collect()
    }
}
