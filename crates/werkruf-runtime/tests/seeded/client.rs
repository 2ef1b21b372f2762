//! Clients: they send messages, repeat them, cancel turns, disconnect, and retry with the same idempotency key.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use werkruf_contract::{ToolContext, TurnStatus, Uuid};
use werkruf_runtime::{AcceptedTurn, Caller, Idempotency, Inbound, InboundMessage, Invoke, InvokeOutcome, Pins, Refusal};
use werkruf_store::StreamKey;

use crate::channel;
use crate::cluster::{Cluster, Member};
use crate::observations::Ack;
use crate::subscriber::{Subscriber, join_stream, read_stream};
use crate::trace::short;
use crate::world::World;

const TRIES: usize = 4;

/// What all clients know; they share it.
#[derive(Default)]
pub struct Known {
    pub conversations: Vec<Uuid>,
    turns: Vec<Uuid>,
    /// Messages sent under an idempotency key, to be sent again.
    keyed: Vec<(ClientMessage, Option<Uuid>)>,
    sent: usize,
}

#[derive(Clone)]
struct ClientMessage {
    sent: Timestamp,
    text: String,
    key: Option<String>,
    conversation_id: Option<Uuid>,
    inbound: Option<Inbound>,
}

#[derive(Clone)]
pub struct Client {
    pub world: Arc<World>,
    pub cluster: Arc<Cluster>,
    pub known: Arc<Mutex<Known>>,
    pub name: String,
}

impl Client {
    pub async fn run(self, actions: u64) {
        for _ in 0..actions {
            self.world.rest(0, 2500).await;
            let rng = &self.world.rng;
            if self.world.faults.hit(rng, self.world.faults.cancels) {
                self.cancel().await;
                continue;
            }
            if self.world.faults.hit(rng, self.world.faults.decisions) {
                self.decide().await;
                continue;
            }
            match rng.below(20) {
                0..=10 => self.send_new().await,
                11..=12 => self.repeat().await,
                13..=16 => self.invoke().await,
                17..=18 => self.retry().await,
                _ => self.subscribe_to_any(),
            }
        }
    }

    pub fn caller(&self) -> Caller {
        Caller {
            principal: Arc::clone(&self.world.principal),
            key_id: None,
            credential: "key:1".to_owned(),
            retried_by: None,
            pins: Pins::default(),
            admin: false,
        }
    }

    /// The response, or None if the process died or the client gave up waiting.
    pub async fn request<T>(&self, member: &Member, timeout_ms: u64, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = member.process.dead.raised() => None,
            () = tokio::time::sleep(Duration::from_millis(timeout_ms)) => None,
            answer = work => Some(answer),
        }
    }

    fn new_message(&self, conversation_id: Option<Uuid>, keyed: bool) -> ClientMessage {
        let mut known = self.known.lock().unwrap();
        known.sent += 1;
        let text = format!("m{}", known.sent);
        ClientMessage { sent: self.world.clock.now(), key: keyed.then(|| format!("key-{text}")), text, conversation_id, inbound: None }
    }

    /// A message that creates a conversation.
    pub fn first_message(&self) -> InboundMessage {
        self.inbound(&self.new_message(None, false))
    }

    async fn send_new(&self) {
        let rng = &self.world.rng;
        let conversations = self.known.lock().unwrap().conversations.clone();
        let new_permille = if conversations.len() < 3 { 400 } else { 50 };
        let conversation_id = rng.pick(&conversations).copied().filter(|_| !rng.permille(new_permille));
        let message = self.new_message(conversation_id, rng.permille(700));
        self.send(ClientMessage { inbound: channel::inbound(rng), ..message }).await;
    }

    /// Sends until the message is acknowledged. Without a key a second copy would be a second message, so it is sent once.
    async fn send(&self, message: ClientMessage) -> Option<Uuid> {
        let tries = if message.key.is_some() { TRIES } else { 1 };
        let mut stored_as = None;
        for _ in 0..tries {
            let Some(member) = self.cluster.any() else {
                self.world.rest(100, 1500).await;
                continue;
            };
            let timeout_ms = if self.world.faults.hit(&self.world.rng, 100) { self.world.rng.between(0, 30) } else { 8000 };
            if message.key.is_some() && self.world.faults.shared && self.world.rng.permille(150) {
                stored_as = self.send_twice(&message, &member).await;
                if stored_as.is_some() {
                    break;
                }
                continue;
            }
            match self.request(&member, timeout_ms, Box::pin(member.runtime.chat(self.inbound(&message)))).await {
                Some(Ok(accepted)) => {
                    stored_as = Some(accepted.turn_id);
                    self.accepted(&message, accepted, &member);
                }
                Some(Err(Refusal::Duplicate { turn_id, same_body })) => {
                    if !same_body {
                        self.world.violated(format!("{}: the same body was treated as another one", message.text));
                    }
                    self.acknowledge(&message, turn_id);
                    stored_as = Some(turn_id);
                }
                other => self.world.note(&self.name, format_args!("{}: {other:?}", message.text)),
            }
            if stored_as.is_some() {
                break;
            }
            self.world.rest(50, 1500).await;
        }
        if message.key.is_some() {
            self.known.lock().unwrap().keyed.push((message, stored_as));
        }
        stored_as
    }

    /// Sends the same message to two processes at the same moment.
    async fn send_twice(&self, message: &ClientMessage, member: &Member) -> Option<Uuid> {
        let other = self.cluster.any()?;
        self.world.count("messages sent to two processes at once");
        let one = self.request(member, 8000, Box::pin(member.runtime.chat(self.inbound(message))));
        let two = self.request(&other, 8000, Box::pin(other.runtime.chat(self.inbound(message))));
        let (one, two) = tokio::join!(one, two);
        let mut turns: Vec<Uuid> = Vec::new();
        for (answer, member) in [(one, member), (two, &other)] {
            match answer {
                Some(Ok(accepted)) => {
                    turns.push(accepted.turn_id);
                    self.accepted(message, accepted, member);
                }
                Some(Err(Refusal::Duplicate { turn_id, .. })) => {
                    turns.push(turn_id);
                    self.acknowledge(message, turn_id);
                }
                other => self.world.note(&self.name, format_args!("{}: {other:?}", message.text)),
            }
        }
        if turns.iter().any(|turn_id| Some(turn_id) != turns.first()) {
            self.world.violated(format!("{} became several turns: {turns:?}", message.text));
        }
        turns.first().copied()
    }

    fn inbound(&self, message: &ClientMessage) -> InboundMessage {
        InboundMessage {
            caller: self.caller(),
            conversation_id: message.conversation_id,
            message: message.text.clone(),
            assistant: None,
            channel: "web".to_owned(),
            locale: None,
            debug: false,
            idempotency: message.key.clone().map(|key| Idempotency { route: "chat".to_owned(), key, fingerprint: message.text.clone() }),
            inbound: message
                .inbound
                .clone()
                .map(|inbound| channel::message(inbound, message.key.as_ref(), &message.text, self.world.clock.now())),
            context: ToolContext::default(),
            parts: Vec::new(),
            client: None,
            results: Vec::new(),
            after: None,
            held: None,
        }
    }

    fn accepted(&self, message: &ClientMessage, accepted: AcceptedTurn, member: &Member) {
        let (conversation_id, turn_id) = (accepted.conversation_id, accepted.turn_id);
        self.acknowledge(message, turn_id);
        if accepted.created {
            self.known.lock().unwrap().conversations.push(conversation_id);
        }
        if !self.world.rng.permille(200) {
            let subscriber = Subscriber::of_turn(&self.world, &member.process, conversation_id, turn_id);
            self.world.tasks.spawn(read_stream(subscriber, accepted.events));
        }
        // A second subscriber, often at another process.
        if self.world.faults.shared && self.world.rng.permille(400) {
            self.subscribe(conversation_id);
        }
    }

    fn acknowledge(&self, message: &ClientMessage, turn_id: Uuid) {
        self.world.note(&self.name, format_args!("{} is stored as {}", message.text, short(turn_id)));
        self.known.lock().unwrap().turns.push(turn_id);
        self.world.observed.lock().unwrap().acks.push(Ack {
            message: message.text.clone(),
            key: message.key.clone(),
            turn_id,
            sent: message.sent,
            acknowledged: self.world.clock.now(),
        });
    }

    /// Sends a key again, with the same body or another one.
    async fn repeat(&self) {
        let rng = &self.world.rng;
        let keyed = self.known.lock().unwrap().keyed.clone();
        let Some((message, stored_as)) = rng.pick(&keyed).cloned() else { return };
        // If the first copy was not acknowledged, this one may be the first to arrive.
        if stored_as.is_none() || rng.permille(600) {
            let again = self.send(message.clone()).await;
            if let (Some(first), Some(again)) = (stored_as, again)
                && first != again
            {
                self.world.violated(format!("{} made turns {} and {}", message.text, short(first), short(again)));
            }
            return;
        }
        let Some(member) = self.cluster.any() else { return };
        let inbound = self.inbound(&ClientMessage { text: format!("{} but different", message.text), ..message.clone() });
        match self.request(&member, 8000, member.runtime.chat(inbound)).await {
            Some(Ok(accepted)) => {
                self.world.violated(format!("another body under the key of {} became {}", message.text, short(accepted.turn_id)));
            }
            Some(Err(Refusal::Duplicate { same_body: true, .. })) => {
                self.world.violated(format!("another body under the key of {} was treated as the same", message.text));
            }
            Some(Err(_)) | None => {}
        }
    }

    async fn invoke(&self) {
        let rng = &self.world.rng;
        let Some(member) = self.cluster.any() else { return };
        let conversations = self.known.lock().unwrap().conversations.clone();
        let conversation_id = rng.pick(&conversations).copied().filter(|_| rng.permille(600));
        let tool = rng.pick(&["lookup", "put", "pay", "sign", "submit"]).copied().unwrap_or("lookup").to_owned();
        let key = self.new_message(None, true).text;
        let id = self.world.clock.new_id();
        let context = ToolContext::new(self.world.principal.tenant_id, id.to_string(), id, self.world.clock.now(), format!("run_{id}"));
        let input = json!({"n": rng.below(6)});
        let invoke = Invoke {
            caller: self.caller(),
            tool: tool.clone(),
            input,
            conversation_id,
            context,
            idempotency: rng.permille(500).then(|| Idempotency {
                route: Idempotency::route_of_tool(&tool),
                key: key.clone(),
                fingerprint: key.clone(),
            }),
            observer: None,
        };
        if let Some(other) = self.cluster.any().filter(|_| self.world.faults.shared && conversation_id.is_none() && rng.permille(400)) {
            // Another client sends an identical call at the same time.
            let (client, twin) = (self.clone(), Invoke { idempotency: None, ..invoke.clone() });
            self.world.count("calls sent to two processes at once");
            self.world.tasks.spawn(async move {
                let answer = client.request(&other, 20_000, Box::pin(other.runtime.invoke(twin))).await;
                client
                    .world
                    .note(&client.name, format_args!("the twin: {:?}", answer.map(|answer| answer.map(|invoked| short(invoked.job_id)))));
            });
        }
        for _ in 0..2 {
            let answer = self.request(&member, 20_000, Box::pin(member.runtime.invoke(invoke.clone()))).await;
            if let Some(Ok(invoked)) = &answer {
                let InvokeOutcome::Done(output) = &invoked.outcome else {
                    self.world.note(&self.name, format_args!("{tool} {} awaits approval", short(invoked.job_id)));
                    return;
                };
                let ok = matches!(**output, werkruf_contract::ToolOutput::Ok(_));
                self.world.note(&self.name, format_args!("{tool} {}: {}", short(invoked.job_id), if ok { "ok" } else { "error" }));
                self.world.observed.lock().unwrap().answers.push((invoked.job_id, ok));
                return;
            }
            self.world.note(&self.name, format_args!("{tool}: {:?}", answer.map(|answer| answer.map(|_| ()))));
            if invoke.idempotency.is_none() {
                return;
            }
        }
    }

    async fn cancel(&self) {
        let rng = &self.world.rng;
        let Some(member) = self.cluster.any() else { return };
        let tenant_id = self.world.principal.tenant_id;
        if rng.permille(600) {
            let mut turns = self.known.lock().unwrap().turns.clone();
            // The newest turns are running; others await approval or are queued.
            if rng.permille(500) {
                let status = if rng.permille(500) { TurnStatus::AwaitingApproval } else { TurnStatus::Accepted };
                let has_status = |turn: &&Arc<werkruf_store::TurnRow>| turn.status == status;
                turns = self.world.tables.lock().unwrap().turns.values().filter(has_status).map(|turn| turn.id).collect();
            }
            let Some(turn_id) = rng.pick(&turns[turns.len().saturating_sub(4)..]).copied() else { return };
            let done = self.request(&member, 5000, member.runtime.cancel_turn(tenant_id, turn_id)).await;
            self.world.note(&self.name, format_args!("cancels {}: {done:?}", short(turn_id)));
            self.world.count("turns canceled");
        } else {
            let running = |row: &&Arc<werkruf_store::CallRow>| !row.status.is_terminal();
            let calls: Vec<Uuid> = self.world.tables.lock().unwrap().calls.values().filter(running).map(|row| row.id).collect();
            let Some(job_id) = rng.pick(&calls).copied() else { return };
            let done = self.request(&member, 5000, member.runtime.cancel_call(tenant_id, job_id)).await;
            self.world.note(&self.name, format_args!("cancels call {}: {done:?}", short(job_id)));
            self.world.count("calls canceled");
        }
    }

    async fn retry(&self) {
        let rng = &self.world.rng;
        let Some(member) = self.cluster.any() else { return };
        let over = |row: &&Arc<werkruf_store::CallRow>| row.status.is_terminal() && row.error_code.is_some();
        let calls: Vec<Uuid> = self.world.tables.lock().unwrap().calls.values().filter(over).map(|row| row.id).collect();
        let Some(job_id) = rng.pick(&calls).copied() else { return };
        let force = rng.permille(300);
        let caller = self.caller();
        let again = self.request(&member, 8000, Box::pin(member.runtime.retry_call(&caller, job_id, force))).await;
        self.world.note(&self.name, format_args!("retries {} force={force}: {again:?}", short(job_id)));
        self.world.count("retries");
    }

    /// Subscribes to a random conversation for a while.
    fn subscribe_to_any(&self) {
        let conversations = self.known.lock().unwrap().conversations.clone();
        let Some(stream_id) = self.world.rng.pick(&conversations).copied() else { return };
        self.subscribe(stream_id);
    }

    fn subscribe(&self, stream_id: Uuid) {
        let Some(member) = self.cluster.any() else { return };
        let after = self.world.tables.lock().unwrap().leases.get(&stream_id).map_or(0, |lease| lease.next_event - 1);
        let stream = StreamKey { tenant_id: self.world.principal.tenant_id, stream_id };
        let turns: Vec<Uuid> = {
            let tables = self.world.tables.lock().unwrap();
            let open = tables.turns.values().filter(|turn| turn.conversation_id == Some(stream_id) && turn.finished_at.is_none());
            open.map(|turn| turn.id).collect()
        };
        let turn_id = self.world.rng.pick(&turns).copied().filter(|_| self.world.faults.shared && self.world.rng.permille(500));
        let subscriber = Subscriber::joining(&self.world, &member.process, stream_id, turn_id, after);
        let reading = join_stream(subscriber, member.runtime, stream);
        if turn_id.is_some() {
            self.world.tasks.spawn(reading);
            return;
        }
        let span = self.world.rng.ms(100, 20_000);
        self.world.tasks.spawn(async move {
            let _ = tokio::time::timeout(span, reading).await;
        });
    }

    /// Sends a new message in the phase without faults; it must be answered.
    pub async fn check_usable(&self, conversation_id: Uuid) {
        let message = self.new_message(Some(conversation_id), false);
        let text = message.text.clone();
        let Some(turn_id) = self.send(message).await else {
            self.world.violated(format!("{text} was not accepted after the faults had ended"));
            return;
        };
        for _ in 0..600 {
            let ended = self.world.tables.lock().unwrap().turns.get(&turn_id).and_then(|turn| turn.finished_at.map(|_| turn.status));
            if let Some(status) = ended {
                if status != werkruf_contract::TurnStatus::Completed {
                    self.world.violated(format!("{text} ended {status} after the faults had ended"));
                }
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.world.violated(format!("the conversation {} is stuck: {text} has no answer", short(conversation_id)));
    }
}
