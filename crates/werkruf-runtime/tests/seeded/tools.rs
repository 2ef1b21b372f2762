//! Four tools, one of each kind, and two that need a person's word. Their other side lives outside every process: what has left is carried out or lost there,
//! whoever still waits for it.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use serde_json::{Value, json};
use werkruf_contract::{
    ApprovalStatus, BoxFuture, CallStatus, Effect, Failure, Invocation, Reply, State, ToolErrorType, ToolObject, ToolSpec, Violation,
};
use werkruf_runtime::Registry;

use crate::ledger::Send;
use crate::mutant::Mutant;
use crate::process::Process;
use crate::trace::short;
use crate::world::{BOSS, World};

pub const PANIC: &str = "scripted panic";

const TOOLS: [(&str, Effect); 6] = [
    ("look", Effect::Read),
    ("keep", Effect::Idempotent),
    ("pay", Effect::Once),
    ("say", Effect::Read),
    ("sign", Effect::Once),
    ("lodge", Effect::Idempotent),
];

struct Tool {
    spec: ToolSpec,
    parameters: Value,
    world: Arc<World>,
    process: Arc<Process>,
}

/// The tools of one process.
pub fn registry(world: &Arc<World>, process: &Arc<Process>) -> Registry {
    let mut registry = Registry::default();
    for (name, effect) in TOOLS {
        let mut spec = ToolSpec::new(name, "scripted", effect);
        spec.timeout = Duration::from_secs(3);
        if matches!(name, "sign" | "lodge") {
            spec.approval = vec![BOSS.into()];
        }
        spec.answers_directly = name == "say";
        spec.concurrency = if name == "keep" { 2 } else { 0 };
        spec.reuse = if name == "look" { Duration::from_secs(20) } else { Duration::ZERO };
        let parameters =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
        registry.add_object(Arc::new(Tool { spec, parameters, world: Arc::clone(world), process: Arc::clone(process) })).unwrap();
    }
    registry
}

impl ToolObject for Tool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>> {
        Ok(args)
    }

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(self.run(args, invocation))
    }

    fn propose(&self, _: &str, _: &str, _: Date) -> Option<Value> {
        None
    }

    fn claims(&self, _: &State, _: &str) -> Option<Value> {
        None
    }
}

/// How a request goes, decided when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Well,
    /// Refused before anything happened, and it says so.
    Refused,
    /// Lost on the way there.
    Lost,
    /// Carried out, but the answer is an error.
    Garbled,
    /// The tool's own code breaks, before or after the request left.
    PanicBefore,
    PanicAfter,
    /// Slow there: the tool's time is up before the answer comes.
    Slow,
    TooMany,
}

const FATES: [Fate; 7] = [Fate::Refused, Fate::Lost, Fate::Garbled, Fate::PanicBefore, Fate::PanicAfter, Fate::Slow, Fate::TooMany];

impl Tool {
    async fn run(&self, args: Value, invocation: Invocation) -> Result<Reply, Failure> {
        let (world, dice) = (&self.world, &self.world.dice);
        world.check_lease(&self.process, invocation.turn_id, format_args!("{} {}", self.spec.name, short(invocation.job_id)));
        self.process.gate().await;
        let fate = if world.weather.strikes(dice, world.weather.tool_fails) {
            dice.pick(&FATES).copied().unwrap_or(Fate::Well)
        } else if world.weather.strikes(dice, world.weather.tool_slow) {
            Fate::Slow
        } else {
            Fate::Well
        };
        world.hesitate().await;
        self.process.gate().await;
        if fate == Fate::PanicBefore {
            std::panic::panic_any(PANIC);
        }
        let n = args["n"].as_u64().unwrap_or_default();
        let answer = self.send(n, &invocation, fate).await;
        self.process.gate().await;
        match fate {
            Fate::PanicAfter => std::panic::panic_any(PANIC),
            Fate::Refused => Err(Failure::upstream("refused", "no").nothing_happened()),
            Fate::TooMany => Err(Failure::new(ToolErrorType::RateLimit, "slowly", "slowly").retry_after(Some(dice.ms(10, 2000)))),
            Fate::Lost | Fate::Garbled => Err(Failure::upstream("bad_gateway", "what?")),
            Fate::Well | Fate::Slow | Fate::PanicBefore => Ok(answer),
        }
    }

    /// The request leaves. Its row must say so already.
    async fn send(&self, n: u64, invocation: &Invocation, fate: Fate) -> Reply {
        let world = Arc::clone(&self.world);
        self.check_row(invocation);
        self.check_word(n, invocation);
        self.check_alone(invocation);
        let redrawn = world.mutant == Mutant::KeyRedrawn && self.spec.effect == Effect::Idempotent;
        let key =
            if redrawn { format!("{}/{}", invocation.idempotency_key, invocation.attempt) } else { invocation.idempotency_key.clone() };
        let mut at = Vec::new();
        for _ in 0..=u32::from(world.mutant == Mutant::SentTwice && self.spec.effect == Effect::Once) {
            let (job_id, turn_id, attempt) = (invocation.job_id, invocation.turn_id, invocation.attempt);
            let mut ledger = world.ledger.lock().unwrap();
            ledger.sends.push(Send { job_id, turn_id, effect: self.spec.effect, key: key.clone(), attempt, n, effects: 0 });
            at.push(ledger.sends.len() - 1);
        }
        let (name, job) = (self.spec.name.clone(), short(invocation.job_id));
        world.note(&self.process.name, format_args!("{name} {n} for {job}/{} leaves, {fate:?}", invocation.attempt));
        let carried_out = matches!(fate, Fate::Well | Fate::Garbled | Fate::PanicAfter | Fate::Slow);
        let slow = fate == Fate::Slow;
        let tasks = world.tasks.clone();
        // Outside: goes on when the call is canceled, when its time is up, when the process is gone.
        let outside = tasks.spawn(async move {
            if slow {
                world.rest(2000, 9000).await
            } else {
                world.rest(1, 300).await
            }
            if carried_out {
                world.note("outside", format_args!("{name} {n} for {job} is carried out"));
                world.ledger.lock().unwrap().carry_out(&at);
            }
            world.rest(1, 100).await;
        });
        outside.await.unwrap();
        let mut reply = Reply::new(json!({"n": n}));
        reply.message = (self.spec.name == "say").then(|| format!("said {n}"));
        if self.spec.effect != Effect::Read {
            reply.state_patch = Some(State::from_iter([(self.spec.name.to_string(), json!(n))]));
        }
        reply
    }

    /// What needs a word has it, for these very arguments.
    fn check_word(&self, n: u64, invocation: &Invocation) {
        if self.spec.approval.is_empty() {
            return;
        }
        let tables = self.world.tables.lock().unwrap();
        let asked = tables.approvals.values().find(|row| row.call_id == invocation.job_id);
        let given = asked.is_some_and(|row| row.status == ApprovalStatus::Approved);
        let meant = asked.and_then(|row| serde_json::from_str::<Value>(&row.arguments).ok()).is_some_and(|value| value["n"] == json!(n));
        let found = asked.map(|row| (row.status, row.arguments.clone()));
        drop(tables);
        if !given || !meant {
            self.world.violated(format!("{} {n} was sent for {}, and the word was {found:?}", self.spec.name, short(invocation.job_id)));
        }
    }

    /// Outside a conversation the same call never runs twice at once, whichever processes were asked for it. Whoever goes on with one
    /// after a crash sends it again by itself: what it had joined may be gone.
    fn check_alone(&self, invocation: &Invocation) {
        if !self.world.weather.shared || invocation.conversation_id.is_some() {
            return;
        }
        let sent: Vec<_> = self.world.ledger.lock().unwrap().sends.iter().map(|send| send.job_id).collect();
        let tables = self.world.tables.lock().unwrap();
        let at_first = |row: &&Arc<werkruf_store::CallRow>| tables.claims.get(&row.turn_id).is_none_or(|times| *times <= 1);
        let Some(own) = tables.calls.get(&invocation.job_id).filter(|row| !row.status.is_terminal()).filter(at_first) else { return };
        let twin = tables.calls.values().filter(at_first).find(|row| {
            row.id != own.id && row.dedupe_key == own.dedupe_key && row.status == CallStatus::Running && sent.contains(&row.id)
        });
        let twin = twin.map(|row| short(row.id));
        drop(tables);
        if let Some(twin) = twin {
            self.world.violated(format!("{} {} leaves while {twin}, the same call, runs", self.spec.name, short(invocation.job_id)));
        }
    }

    /// Persist before you act: the row of this very attempt is durable, and a client may have heard of it.
    fn check_row(&self, invocation: &Invocation) {
        let tables = self.world.tables.lock().unwrap();
        let job = short(invocation.job_id);
        let fault = match tables.calls.get(&invocation.job_id) {
            None => Some("no row".to_owned()),
            // One that joined another call and had to go on alone after a crash goes by its own id.
            Some(row) if row.idempotency_key.clone().unwrap_or_else(|| row.id.to_string()) != invocation.idempotency_key => {
                Some("another key than its row's".to_owned())
            }
            Some(row) if row.effect != self.spec.effect => Some(format!("effect {} in the row", row.effect)),
            // Whoever has lost the conversation meanwhile may still have a request in hand; only the first sender of a row must see it running.
            Some(row) if row.status == CallStatus::Queued => Some(format!("attempt {} of a queued row", invocation.attempt)),
            Some(row) if row.attempt < invocation.attempt => {
                Some(format!("attempt {} where the row says {}", invocation.attempt, row.attempt))
            }
            Some(_) => None,
        };
        drop(tables);
        if let Some(fault) = fault {
            self.world.violated(format!("{} {job} was sent with {fault}", self.spec.name));
        }
    }
}
