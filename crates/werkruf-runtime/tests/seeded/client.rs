//! People and programs at the door: they send, repeat themselves, change their mind, leave, and come back with the same key.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use werkruf_contract::{ToolContext, TurnStatus, Uuid};
use werkruf_runtime::{AcceptedTurn, Caller, Idempotency, InboundMessage, Invoke, InvokeOutcome, Refusal, SubscribeOptions};
use werkruf_store::StreamKey;

use crate::cluster::{Cluster, Member};
use crate::ledger::Ack;
use crate::listener::{Listener, listen};
use crate::trace::short;
use crate::world::World;

const TRIES: usize = 4;

/// What all clients know together.
#[derive(Default)]
pub struct Known {
    pub conversations: Vec<Uuid>,
    turns: Vec<Uuid>,
    /// Messages sent under a key, to be sent again.
    keyed: Vec<(Letter, Option<Uuid>)>,
    sent: usize,
}

#[derive(Clone)]
struct Letter {
    sent: Timestamp,
    text: String,
    key: Option<String>,
    conversation_id: Option<Uuid>,
}

#[derive(Clone)]
pub struct Client {
    pub world: Arc<World>,
    pub cluster: Arc<Cluster>,
    pub known: Arc<Mutex<Known>>,
    pub name: String,
}

impl Client {
    pub async fn live(self, deeds: u64) {
        for _ in 0..deeds {
            self.world.rest(0, 2500).await;
            let dice = &self.world.dice;
            if self.world.weather.strikes(dice, self.world.weather.cancels) {
                self.cancel().await;
                continue;
            }
            if self.world.weather.strikes(dice, self.world.weather.words) {
                self.decide().await;
                continue;
            }
            match dice.below(20) {
                0..=10 => self.write().await,
                11..=12 => self.repeat().await,
                13..=16 => self.invoke().await,
                17..=18 => self.retry().await,
                _ => self.watch(),
            }
        }
    }

    pub fn caller(&self) -> Caller {
        Caller { principal: Arc::clone(&self.world.person), key_id: None, admin: false }
    }

    /// The answer, or nothing: the server died, or the client lost patience.
    pub async fn asks<T>(&self, member: &Member, patience: u64, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = member.process.dead.raised() => None,
            () = tokio::time::sleep(Duration::from_millis(patience)) => None,
            answer = work => Some(answer),
        }
    }

    fn letter(&self, conversation_id: Option<Uuid>, keyed: bool) -> Letter {
        let mut known = self.known.lock().unwrap();
        known.sent += 1;
        let text = format!("m{}", known.sent);
        Letter { sent: self.world.clock.now(), key: keyed.then(|| format!("key-{text}")), text, conversation_id }
    }

    /// A message that makes a conversation.
    pub fn first_words(&self) -> InboundMessage {
        self.inbound(&self.letter(None, false))
    }

    async fn write(&self) {
        let dice = &self.world.dice;
        let conversations = self.known.lock().unwrap().conversations.clone();
        let room = if conversations.len() < 3 { 400 } else { 50 };
        let conversation_id = dice.pick(&conversations).copied().filter(|_| !dice.permille(room));
        let letter = self.letter(conversation_id, dice.permille(700));
        self.send(letter).await;
    }

    /// Sends until it is told that the message is stored. Without a key a second copy would be a second message.
    async fn send(&self, letter: Letter) -> Option<Uuid> {
        let tries = if letter.key.is_some() { TRIES } else { 1 };
        let mut told = None;
        for _ in 0..tries {
            let Some(member) = self.cluster.any() else {
                self.world.rest(100, 1500).await;
                continue;
            };
            let patience = if self.world.weather.strikes(&self.world.dice, 100) { self.world.dice.between(0, 30) } else { 8000 };
            if letter.key.is_some() && self.world.weather.shared && self.world.dice.permille(150) {
                told = self.send_twice(&letter, &member).await;
                if told.is_some() {
                    break;
                }
                continue;
            }
            match self.asks(&member, patience, member.runtime.chat(self.inbound(&letter))).await {
                Some(Ok(accepted)) => {
                    told = Some(accepted.turn_id);
                    self.accepted(&letter, accepted, &member);
                }
                Some(Err(Refusal::Duplicate { turn_id, same_body })) => {
                    if !same_body {
                        self.world.violated(format!("{}: the same body was taken for another", letter.text));
                    }
                    self.acknowledge(&letter, turn_id);
                    told = Some(turn_id);
                }
                other => self.world.note(&self.name, format_args!("{}: {other:?}", letter.text)),
            }
            if told.is_some() {
                break;
            }
            self.world.rest(50, 1500).await;
        }
        if letter.key.is_some() {
            self.known.lock().unwrap().keyed.push((letter, told));
        }
        told
    }

    /// The same letter to two processes at the same instant.
    async fn send_twice(&self, letter: &Letter, member: &Member) -> Option<Uuid> {
        let other = self.cluster.any()?;
        self.world.count("letters sent to two at once");
        let one = self.asks(member, 8000, member.runtime.chat(self.inbound(letter)));
        let two = self.asks(&other, 8000, other.runtime.chat(self.inbound(letter)));
        let (one, two) = tokio::join!(one, two);
        let mut told: Vec<Uuid> = Vec::new();
        for (answer, member) in [(one, member), (two, &other)] {
            match answer {
                Some(Ok(accepted)) => {
                    told.push(accepted.turn_id);
                    self.accepted(letter, accepted, member);
                }
                Some(Err(Refusal::Duplicate { turn_id, .. })) => {
                    told.push(turn_id);
                    self.acknowledge(letter, turn_id);
                }
                other => self.world.note(&self.name, format_args!("{}: {other:?}", letter.text)),
            }
        }
        if told.iter().any(|turn_id| Some(turn_id) != told.first()) {
            self.world.violated(format!("{} became several turns at once: {told:?}", letter.text));
        }
        told.first().copied()
    }

    fn inbound(&self, letter: &Letter) -> InboundMessage {
        InboundMessage {
            caller: self.caller(),
            conversation_id: letter.conversation_id,
            message: letter.text.clone(),
            assistant: None,
            channel: "web".to_owned(),
            locale: None,
            debug: false,
            idempotency: letter.key.clone().map(|key| Idempotency { key, fingerprint: letter.text.clone() }),
            trace_id: None,
            parts: Vec::new(),
            brought: None,
            results: Vec::new(),
            after: None,
        }
    }

    fn accepted(&self, letter: &Letter, accepted: AcceptedTurn, member: &Member) {
        let (conversation_id, turn_id) = (accepted.conversation_id, accepted.turn_id);
        self.acknowledge(letter, turn_id);
        if accepted.created {
            self.known.lock().unwrap().conversations.push(conversation_id);
        }
        if !self.world.dice.permille(200) {
            let listener = Listener::of_turn(&self.world, &member.process, conversation_id, turn_id);
            self.world.tasks.spawn(listen(listener, accepted.events));
        }
        // Somebody else looks over its shoulder, as likely as not at another process.
        if self.world.weather.shared && self.world.dice.permille(400) {
            self.follow(conversation_id);
        }
    }

    fn acknowledge(&self, letter: &Letter, turn_id: Uuid) {
        self.world.note(&self.name, format_args!("{} is stored as {}", letter.text, short(turn_id)));
        self.known.lock().unwrap().turns.push(turn_id);
        self.world.ledger.lock().unwrap().acks.push(Ack {
            message: letter.text.clone(),
            key: letter.key.clone(),
            turn_id,
            sent: letter.sent,
            told: self.world.clock.now(),
        });
    }

    /// The same key again, with the same body or another.
    async fn repeat(&self) {
        let dice = &self.world.dice;
        let keyed = self.known.lock().unwrap().keyed.clone();
        let Some((letter, told)) = dice.pick(&keyed).cloned() else { return };
        // Where nobody knows the first one, the second may be the first to arrive.
        if told.is_none() || dice.permille(600) {
            let again = self.send(letter.clone()).await;
            if let (Some(first), Some(again)) = (told, again)
                && first != again
            {
                self.world.violated(format!("{} made turns {} and {}", letter.text, short(first), short(again)));
            }
            return;
        }
        let Some(member) = self.cluster.any() else { return };
        let mut inbound = self.inbound(&letter);
        inbound.message.push_str(" but different");
        if let Some(key) = &mut inbound.idempotency {
            key.fingerprint.push('\'');
        }
        match self.asks(&member, 8000, member.runtime.chat(inbound)).await {
            Some(Ok(accepted)) => {
                self.world.violated(format!("another body under the key of {} became {}", letter.text, short(accepted.turn_id)));
            }
            Some(Err(Refusal::Duplicate { same_body: true, .. })) => {
                self.world.violated(format!("another body under the key of {} was taken for the same", letter.text));
            }
            Some(Err(_)) | None => {}
        }
    }

    async fn invoke(&self) {
        let dice = &self.world.dice;
        let Some(member) = self.cluster.any() else { return };
        let conversations = self.known.lock().unwrap().conversations.clone();
        let conversation_id = dice.pick(&conversations).copied().filter(|_| dice.permille(600));
        let tool = dice.pick(&["look", "keep", "pay", "sign", "lodge"]).copied().unwrap_or("look").to_owned();
        let key = self.letter(None, true).text;
        let id = self.world.clock.new_id();
        let context = ToolContext::new(self.world.person.tenant_id, id.to_string(), id, self.world.clock.now(), format!("run_{id}"));
        let input = json!({"n": dice.below(6)});
        let invoke = Invoke {
            caller: self.caller(),
            tool: tool.clone(),
            input,
            conversation_id,
            context,
            idempotency: dice.permille(500).then(|| Idempotency { key: key.clone(), fingerprint: key.clone() }),
        };
        if let Some(other) = self.cluster.any().filter(|_| self.world.weather.shared && conversation_id.is_none() && dice.permille(400)) {
            // Somebody else wants the very same at the same time.
            let (client, twin) = (self.clone(), Invoke { idempotency: None, ..invoke.clone() });
            self.world.count("calls asked of two at once");
            self.world.tasks.spawn(async move {
                let answer = client.asks(&other, 20_000, Box::pin(other.runtime.invoke(twin))).await;
                client
                    .world
                    .note(&client.name, format_args!("the twin: {:?}", answer.map(|answer| answer.map(|invoked| short(invoked.job_id)))));
            });
        }
        for _ in 0..2 {
            let answer = self.asks(&member, 20_000, Box::pin(member.runtime.invoke(invoke.clone()))).await;
            if let Some(Ok(invoked)) = &answer {
                let InvokeOutcome::Done(output) = &invoked.outcome else {
                    self.world.note(&self.name, format_args!("{tool} {} waits for a word", short(invoked.job_id)));
                    return;
                };
                let well = matches!(**output, werkruf_contract::ToolOutput::Ok(_));
                self.world.note(&self.name, format_args!("{tool} {}: {}", short(invoked.job_id), if well { "ok" } else { "error" }));
                self.world.ledger.lock().unwrap().answers.push((invoked.job_id, well));
                return;
            }
            self.world.note(&self.name, format_args!("{tool}: {:?}", answer.map(|answer| answer.map(|_| ()))));
            if invoke.idempotency.is_none() {
                return;
            }
        }
    }

    async fn cancel(&self) {
        let dice = &self.world.dice;
        let Some(member) = self.cluster.any() else { return };
        let tenant_id = self.world.person.tenant_id;
        if dice.permille(600) {
            let mut turns = self.known.lock().unwrap().turns.clone();
            // The newest are the ones still running; others wait for a word, or for their place.
            if dice.permille(500) {
                let status = if dice.permille(500) { TurnStatus::AwaitingApproval } else { TurnStatus::Accepted };
                let waits = |turn: &&Arc<werkruf_store::TurnRow>| turn.status == status;
                turns = self.world.tables.lock().unwrap().turns.values().filter(waits).map(|turn| turn.id).collect();
            }
            let Some(turn_id) = dice.pick(&turns[turns.len().saturating_sub(4)..]).copied() else { return };
            let done = self.asks(&member, 5000, member.runtime.cancel_turn(tenant_id, turn_id)).await;
            self.world.note(&self.name, format_args!("cancels {}: {done:?}", short(turn_id)));
            self.world.count("turns canceled");
        } else {
            let running = |row: &&Arc<werkruf_store::CallRow>| !row.status.is_terminal();
            let calls: Vec<Uuid> = self.world.tables.lock().unwrap().calls.values().filter(running).map(|row| row.id).collect();
            let Some(job_id) = dice.pick(&calls).copied() else { return };
            let done = self.asks(&member, 5000, member.runtime.cancel_call(tenant_id, job_id)).await;
            self.world.note(&self.name, format_args!("cancels call {}: {done:?}", short(job_id)));
            self.world.count("calls canceled");
        }
    }

    async fn retry(&self) {
        let dice = &self.world.dice;
        let Some(member) = self.cluster.any() else { return };
        let over = |row: &&Arc<werkruf_store::CallRow>| row.status.is_terminal() && row.error_code.is_some();
        let calls: Vec<Uuid> = self.world.tables.lock().unwrap().calls.values().filter(over).map(|row| row.id).collect();
        let Some(job_id) = dice.pick(&calls).copied() else { return };
        let force = dice.permille(300);
        let caller = self.caller();
        let again = self.asks(&member, 8000, Box::pin(member.runtime.retry_call(&caller, job_id, force))).await;
        self.world.note(&self.name, format_args!("retries {} force={force}: {again:?}", short(job_id)));
        self.world.count("retries");
    }

    /// Listens to a conversation for a while.
    fn watch(&self) {
        let conversations = self.known.lock().unwrap().conversations.clone();
        let Some(stream_id) = self.world.dice.pick(&conversations).copied() else { return };
        self.follow(stream_id);
    }

    fn follow(&self, stream_id: Uuid) {
        let Some(member) = self.cluster.any() else { return };
        let after = self.world.tables.lock().unwrap().leases.get(&stream_id).map_or(0, |lease| lease.next_event - 1);
        let stream = StreamKey { tenant_id: self.world.person.tenant_id, stream_id };
        let turns: Vec<Uuid> = {
            let tables = self.world.tables.lock().unwrap();
            let open = tables.turns.values().filter(|turn| turn.conversation_id == Some(stream_id) && turn.finished_at.is_none());
            open.map(|turn| turn.id).collect()
        };
        if let Some(turn_id) = self.world.dice.pick(&turns).copied().filter(|_| self.world.weather.shared && self.world.dice.permille(500))
        {
            let (events, shown) = member.runtime.subscribe(stream, SubscribeOptions { turn_id: Some(turn_id), debug: false, after });
            let listener = Listener::joining(&self.world, &member.process, (stream_id, turn_id), after, shown);
            self.world.tasks.spawn(listen(listener, events));
            return;
        }
        let (events, shown) = member.runtime.subscribe(stream, SubscribeOptions { turn_id: None, debug: false, after });
        let listener = Listener::of_conversation(&self.world, &member.process, stream_id, shown);
        let span = self.world.dice.ms(100, 20_000);
        self.world.tasks.spawn(async move {
            let _ = tokio::time::timeout(span, listen(listener, events)).await;
        });
    }

    /// A fresh message in good weather, which must be answered.
    pub async fn last_word(&self, conversation_id: Uuid) {
        let letter = self.letter(Some(conversation_id), false);
        let text = letter.text.clone();
        let Some(turn_id) = self.send(letter).await else {
            self.world.violated(format!("{text} was not taken in good weather"));
            return;
        };
        for _ in 0..600 {
            let ended = self.world.tables.lock().unwrap().turns.get(&turn_id).and_then(|turn| turn.finished_at.map(|_| turn.status));
            if let Some(status) = ended {
                if status != werkruf_contract::TurnStatus::Completed {
                    self.world.violated(format!("{text} ended {status} in good weather"));
                }
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.world.violated(format!("the conversation {} is stuck: {text} has no answer", short(conversation_id)));
    }
}
