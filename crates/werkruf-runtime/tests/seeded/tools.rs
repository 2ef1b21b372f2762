//! Four tools, one of each kind, and two that need an approval. Their remote side is outside every process: a request that was sent
//! is executed or lost there, whether or not its sender still waits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use werkruf_contract::{
    ApprovalStatus, BoxFuture, CallStatus, Effect, Failure, Invocation, Reply, State, ToolErrorType, ToolObject, ToolSpec,
};
use werkruf_runtime::Registry;

use crate::mutant::Mutant;
use crate::observations::Send;
use crate::process::Process;
use crate::trace::short;
use crate::world::{APPROVER, World};

pub const PANIC: &str = "scripted panic";

const TOOLS: [(&str, Effect); 6] = [
    ("lookup", Effect::Read),
    ("put", Effect::Idempotent),
    ("pay", Effect::Once),
    ("echo", Effect::Read),
    ("sign", Effect::Once),
    ("submit", Effect::Idempotent),
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
        spec.timeout = Some(Duration::from_secs(3));
        if matches!(name, "sign" | "submit") {
            spec.approval = vec![APPROVER.into()];
        }
        spec.answers_directly = name == "echo";
        spec.concurrency = if name == "put" { 2 } else { 0 };
        spec.reuse = (name == "lookup").then_some(Duration::from_secs(20));
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

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(self.run(args, invocation))
    }
}

/// The outcome of a request, drawn when it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Success,
    /// Rejected before anything was executed, with an error that says so.
    Refused,
    /// Lost before it reached the tool.
    Lost,
    /// Executed, but the response is an error.
    Garbled,
    /// The tool's code panics before or after the request is sent.
    PanicBefore,
    PanicAfter,
    /// The timeout expires before the response arrives.
    Slow,
    RateLimited,
}

const FAULTS: [Outcome; 7] =
    [Outcome::Refused, Outcome::Lost, Outcome::Garbled, Outcome::PanicBefore, Outcome::PanicAfter, Outcome::Slow, Outcome::RateLimited];

impl Tool {
    async fn run(&self, args: Value, invocation: Invocation) -> Result<Reply, Failure> {
        let (world, rng) = (&self.world, &self.world.rng);
        world.check_lease(&self.process, invocation.turn_id, format_args!("{} {}", self.spec.name, short(invocation.job_id)));
        self.process.gate().await;
        let outcome = if world.faults.hit(rng, world.faults.tool_fails) {
            rng.pick(&FAULTS).copied().unwrap_or(Outcome::Success)
        } else if world.faults.hit(rng, world.faults.tool_slow) {
            Outcome::Slow
        } else {
            Outcome::Success
        };
        world.delay().await;
        self.process.gate().await;
        if outcome == Outcome::PanicBefore {
            std::panic::panic_any(PANIC);
        }
        let n = args["n"].as_u64().unwrap_or_default();
        let answer = self.send(n, &invocation, outcome).await;
        self.process.gate().await;
        match outcome {
            Outcome::PanicAfter => std::panic::panic_any(PANIC),
            Outcome::Refused => Err(Failure::upstream("refused", "no").nothing_happened()),
            Outcome::RateLimited => {
                Err(Failure::new(ToolErrorType::RateLimit, "slow_down", "slow down").retry_after(Some(rng.ms(10, 2000))))
            }
            Outcome::Lost | Outcome::Garbled => Err(Failure::upstream("bad_gateway", "not understood")),
            Outcome::Success | Outcome::Slow | Outcome::PanicBefore => Ok(answer),
        }
    }

    /// Sends the request. Its row must be stored already.
    async fn send(&self, n: u64, invocation: &Invocation, outcome: Outcome) -> Reply {
        let world = Arc::clone(&self.world);
        self.check_row(invocation);
        self.check_approval(n, invocation);
        self.check_no_twin(invocation);
        let redrawn = world.mutant == Mutant::KeyRedrawn && self.spec.effect == Effect::Idempotent;
        let key =
            if redrawn { format!("{}/{}", invocation.idempotency_key, invocation.attempt) } else { invocation.idempotency_key.clone() };
        let mut at = Vec::new();
        for _ in 0..=u32::from(world.mutant == Mutant::SentTwice && self.spec.effect == Effect::Once) {
            let (job_id, turn_id, attempt) = (invocation.job_id, invocation.turn_id, invocation.attempt);
            let mut observed = world.observed.lock().unwrap();
            observed.sends.push(Send { job_id, turn_id, effect: self.spec.effect, key: key.clone(), attempt, n, effects: 0 });
            at.push(observed.sends.len() - 1);
        }
        let (name, job) = (self.spec.name.clone(), short(invocation.job_id));
        world.note(&self.process.name, format_args!("{name} {n} for {job}/{} is sent, {outcome:?}", invocation.attempt));
        let executed = matches!(outcome, Outcome::Success | Outcome::Garbled | Outcome::PanicAfter | Outcome::Slow);
        let slow = outcome == Outcome::Slow;
        let tasks = world.tasks.clone();
        // The remote side continues when the call is canceled or timed out and when the process is dead.
        let remote = tasks.spawn(async move {
            if slow {
                world.rest(2000, 9000).await
            } else {
                world.rest(1, 300).await
            }
            if executed {
                world.note("remote", format_args!("{name} {n} for {job} is executed"));
                world.observed.lock().unwrap().execute(&at);
            }
            world.rest(1, 100).await;
        });
        remote.await.unwrap();
        let mut reply = Reply::new(json!({"n": n}));
        reply.message = (self.spec.name == "echo").then(|| format!("echo {n}"));
        if self.spec.effect != Effect::Read {
            reply.state_patch = Some(State::from_iter([(self.spec.name.to_string(), json!(n))]));
        }
        reply
    }

    /// A call that needs an approval has one, for exactly these arguments. A `once` call after untrusted content needs one too.
    fn check_approval(&self, n: u64, invocation: &Invocation) {
        let tables = self.world.tables.lock().unwrap();
        let tainted = tables.calls.get(&invocation.job_id).is_some_and(|row| row.taint.is_some()) && self.spec.effect == Effect::Once;
        if self.spec.approval.is_empty() && !tainted {
            return;
        }
        if tainted {
            self.world.count("tainted calls that were approved");
        }
        let approval = tables.approvals.values().find(|row| row.call_id == invocation.job_id);
        let approved = approval.is_some_and(|row| row.status == ApprovalStatus::Approved);
        let same_arguments =
            approval.and_then(|row| serde_json::from_str::<Value>(&row.arguments).ok()).is_some_and(|value| value["n"] == json!(n));
        let found = approval.map(|row| (row.status, row.arguments.clone()));
        drop(tables);
        if !approved || !same_arguments {
            self.world.violated(format!(
                "{} {n} was sent for {}, and its approval was {found:?}",
                self.spec.name,
                short(invocation.job_id)
            ));
        }
    }

    /// Outside a conversation identical calls never run at once, on whichever processes. A process that resumes a call after a crash
    /// sends it without joining another: the call that it had joined may be lost.
    fn check_no_twin(&self, invocation: &Invocation) {
        if !self.world.faults.shared || invocation.conversation_id.is_some() {
            return;
        }
        let sent: Vec<_> = self.world.observed.lock().unwrap().sends.iter().map(|send| send.job_id).collect();
        let tables = self.world.tables.lock().unwrap();
        let at_first = |row: &&Arc<werkruf_store::CallRow>| tables.claims.get(&row.turn_id).is_none_or(|times| *times <= 1);
        let Some(own) = tables.calls.get(&invocation.job_id).filter(|row| !row.status.is_terminal()).filter(at_first) else { return };
        let twin = tables.calls.values().filter(at_first).find(|row| {
            row.id != own.id && row.dedupe_key == own.dedupe_key && row.status == CallStatus::Running && sent.contains(&row.id)
        });
        let twin = twin.map(|row| short(row.id));
        drop(tables);
        if let Some(twin) = twin {
            self.world.violated(format!("{} {} is sent while the identical call {twin} runs", self.spec.name, short(invocation.job_id)));
        }
    }

    /// The row of this attempt must be stored before the request is sent.
    fn check_row(&self, invocation: &Invocation) {
        let tables = self.world.tables.lock().unwrap();
        let job = short(invocation.job_id);
        let fault = match tables.calls.get(&invocation.job_id) {
            None => Some("no row".to_owned()),
            // A call that had joined another one and runs by itself after a crash uses its own id as key.
            Some(row) if row.idempotency_key.clone().unwrap_or_else(|| row.id.to_string()) != invocation.idempotency_key => {
                Some("another key than its row's".to_owned())
            }
            Some(row) if row.effect != self.spec.effect => Some(format!("effect {} in the row", row.effect)),
            // A process that has lost the lease may still send a late request; only the first sender must find the row running.
            Some(row) if row.status == CallStatus::Queued => Some(format!("attempt {} of a queued row", invocation.attempt)),
            Some(row) if row.attempt < invocation.attempt => {
                Some(format!("attempt {} where the row has {}", invocation.attempt, row.attempt))
            }
            Some(_) => None,
        };
        drop(tables);
        if let Some(fault) = fault {
            self.world.violated(format!("{} {job} was sent with {fault}", self.spec.name));
        }
    }
}
