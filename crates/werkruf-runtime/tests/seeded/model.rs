//! A faulty language model: it cuts streams, rejects requests, stalls, calls unknown tools with invalid arguments, and repeats
//! call ids. It also validates each history as a provider does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use werkruf_contract::{BoxFuture, CallKind};
use werkruf_llm::{
    Answer, AnswerStream, Delta, Message, ModelError, ModelFault, ModelRequest, Provider, ProviderItem, RequestSize, TokenUsage, ToolCall,
    ToolChoice,
};

use crate::mutant::Mutant;
use crate::process::Process;
use crate::world::World;

const TOOLS: [&str; 7] = ["lookup", "put", "pay", "echo", "sign", "submit", "unknown"];
/// The model calls no more tools after this number of steps.
const MAX_STEPS: usize = 4;

pub struct Model {
    pub world: Arc<World>,
    pub process: Arc<Process>,
}

/// The deltas of a response, each with the delay before it.
pub type Script = VecDeque<(Duration, Result<Delta, ModelError>)>;

impl Provider for Model {
    fn name(&self) -> &str {
        "scripted"
    }

    fn default_model(&self) -> &str {
        "seeded-1"
    }

    fn size(&self, _: &ModelRequest) -> RequestSize {
        RequestSize::default()
    }

    fn takes_answer(&self, _: Option<&str>, _: &serde_json::Value) -> bool {
        true
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        Box::pin(self.answer(request))
    }
}

impl Model {
    async fn answer(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        let (world, rng) = (&self.world, &self.world.rng);
        let (message, depth) = subject(&request.messages);
        let turn_id = world.tables.lock().unwrap().turn_of(&message);
        if let Some(turn_id) = turn_id {
            world.check_lease(&self.process, turn_id, format_args!("a request about {message}"));
        }
        world.observed.lock().unwrap().prepare_request(&message, &self.process.name);
        self.process.gate().await;
        if self.fails(4) {
            world.note(&self.process.name, format_args!("model: no connection"));
            world.observed.lock().unwrap().refuse_request(&message, &self.process.name);
            return Err(ModelError::new(ModelFault::Connect, "no connection"));
        }
        if let Some(fault) = fault_in(&request.messages) {
            world.violated(format!("the model received an invalid history: {fault}"));
        }
        let at = world.observed.lock().unwrap().record_request(&message, &self.process.name);
        world.note(&self.process.name, format_args!("model request about {message}, step {depth}"));
        world.rest(1, 40).await;
        if world.faults.hit(rng, world.faults.model_slow) {
            world.rest(1000, 25_000).await;
        }
        self.process.gate().await;
        if self.fails(4) {
            let error = self.refusal();
            if error.may_have_acted() {
                self.receive_approvals(&request);
            }
            return Err(error);
        }
        let script = self.script(&request, depth);
        Ok(self.stream(script, at))
    }

    fn fails(&self, share: u64) -> bool {
        let faults = &self.world.faults;
        faults.hit(&self.world.rng, faults.model_fails / share)
    }

    fn refusal(&self) -> ModelError {
        let rng = &self.world.rng;
        let mut error = match rng.below(5) {
            0 => ModelError::new(ModelFault::Refused { status: 400 }, "no"),
            1 => ModelError::new(ModelFault::FirstByte, "nothing came"),
            2 => ModelError::new(ModelFault::Refused { status: 503 }, "later"),
            3 => ModelError::new(ModelFault::Protocol, "not understood"),
            _ => ModelError::new(ModelFault::Refused { status: 429 }, "slow down"),
        };
        if matches!(error.fault, ModelFault::Refused { status: 429 }) && rng.permille(700) {
            error.retry_after = Some(if rng.permille(100) { Duration::from_secs(90) } else { rng.ms(100, 4000) });
        }
        self.world.note(&self.process.name, format_args!("model: {error}"));
        error
    }

    fn script(&self, request: &ModelRequest, depth: usize) -> Script {
        let (world, rng) = (&self.world, &self.world.rng);
        let mut script = Script::new();
        let mut answer = Answer { executable: true, finish: Some("stop".to_owned()), ..Answer::default() };
        let items = self.add_items(&mut script, &mut answer);
        let items = self.add_granted(&mut script, &mut answer, self.receive_approvals(request), items);
        let calls = request.tool_choice == ToolChoice::Auto && depth < MAX_STEPS && rng.permille(650);
        if !calls || rng.permille(300) {
            for _ in 0..rng.between(1, 3) {
                let text = format!("w{} ", rng.below(1000));
                answer.text.push_str(&text);
                script.push_back((self.gap(), Ok(Delta::Text(text))));
            }
        }
        if calls {
            let whole = !self.fails(3);
            answer.calls = self.calls(whole);
            if whole {
                self.add_requests(&mut answer);
            }
            for call in answer.calls.iter_mut().filter(|_| items > 0) {
                call.output_index += items;
            }
            answer.executable = whole || world.mutant == Mutant::CutAccepted;
        }
        if rng.permille(850) {
            let (input_tokens, output_tokens) = (rng.between_signed(10, 500), rng.between_signed(1, 60));
            answer.usage =
                Some(TokenUsage { input_tokens, output_tokens, total_tokens: input_tokens + output_tokens, ..TokenUsage::default() });
        }
        let end = if self.fails(3) {
            world.count("streams cut");
            world.observed.lock().unwrap().cut.extend(numbers(&answer.calls));
            match rng.below(3) {
                // The connection just closes.
                0 => return script,
                1 => Err(ModelError::new(ModelFault::Idle, "silence")),
                _ => Err(ModelError::new(ModelFault::Incomplete, "cut")),
            }
        } else {
            Ok(Delta::Done(Box::new(answer)))
        };
        script.push_back((self.gap(), end));
        script
    }

    /// Sometimes adds provider items to the response, some without their end; returns their number.
    fn add_items(&self, script: &mut Script, answer: &mut Answer) -> u32 {
        let (world, rng) = (&self.world, &self.world.rng);
        let many = if rng.permille(150) { u32::try_from(rng.between(1, 3)).unwrap() } else { 0 };
        for output_index in 0..many {
            let kind = if rng.permille(500) { "mcp_call" } else { "web_search_call" }.to_owned();
            let started = ProviderItem { kind, item_id: Some(format!("i{}", rng.below(1000))), output_index, ..ProviderItem::default() };
            let error = rng.permille(200).then(|| "down".into());
            let ended = ProviderItem { arguments: Some("{}".to_owned()), error, ..started.clone() };
            answer.items.push(ended.clone());
            // Some items are in the complete response only, without a delta.
            if rng.permille(850) {
                world.count("provider items");
                script.push_back((self.gap(), Ok(Delta::ItemStarted(Box::new(started)))));
                if rng.permille(850) {
                    script.push_back((self.gap(), Ok(Delta::ItemFinished(Box::new(ended)))));
                }
            }
        }
        many
    }

    pub fn gap(&self) -> Duration {
        let (rng, faults) = (&self.world.rng, &self.world.faults);
        // Between processes slow enough for a partial text to be checkpointed.
        let slow = faults.shared && rng.permille(200);
        if faults.hit(rng, faults.model_slow / 2) {
            rng.ms(100, 8000)
        } else if slow {
            rng.ms(300, 1500)
        } else {
            rng.ms(0, 20)
        }
    }

    fn calls(&self, whole: bool) -> Vec<ToolCall> {
        let (world, rng) = (&self.world, &self.world.rng);
        let many = if rng.permille(60) { rng.between(5, 8) } else { rng.between(1, 4) };
        let mut calls: Vec<ToolCall> = Vec::new();
        for output_index in 0..u32::try_from(many).unwrap() {
            if let Some(twin) = rng.pick(&calls).filter(|_| rng.permille(200)).cloned() {
                calls.push(ToolCall { output_index, ..twin });
                continue;
            }
            // Few numbers, so that the same call occurs in other steps and turns; a cut response has numbers of its own.
            let n = if whole { rng.below(6) } else { 1_000_000 + rng.below(1_000_000_000) };
            let arguments = match rng.below(20) {
                0 => "{\"n\":".to_owned(),
                1 => "[1]".to_owned(),
                2 => String::new(),
                3 => format!("{{\"n\":\"{n}\"}}"),
                _ => format!("{{\"n\":{n}}}"),
            };
            let call_id = match rng.below(8) {
                0 => None,
                1 => Some(String::new()),
                2 | 3 => Some("call_0".to_owned()),
                _ => Some(format!("c{}", rng.below(100_000))),
            };
            let name = rng.pick(&TOOLS).copied().unwrap_or("lookup").to_owned();
            calls.push(ToolCall {
                kind: CallKind::Function,
                item_id: None,
                status: None,
                server_label: None,
                call_id,
                output_index,
                name,
                arguments,
            });
        }
        if !whole {
            world.count("answers cut off");
            world.observed.lock().unwrap().cut.extend(numbers(&calls));
        }
        calls
    }

    /// Streams the script while the process is alive.
    fn stream(&self, script: Script, at: usize) -> AnswerStream {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        AnswerStream::new(futures_util::stream::unfold(script, move |mut script| {
            let (world, process) = (Arc::clone(&world), Arc::clone(&process));
            async move {
                let (gap, delta) = script.pop_front()?;
                tokio::time::sleep(gap).await;
                process.gate().await;
                match &delta {
                    Ok(Delta::Done(answer)) => {
                        world.observed.lock().unwrap().model_requests[at].reported = answer.usage.map(|usage| usage.total_tokens);
                        let calls: Vec<String> = answer.calls.iter().map(|call| format!("{}{}", call.name, call.arguments)).collect();
                        let whole = if answer.executable { "" } else { " CUT" };
                        world.note(&process.name, format_args!("model: {:?} {}{whole}", answer.text, calls.join(" ")));
                    }
                    Ok(Delta::Text(text)) => world.observed.lock().unwrap().record_text(&process.name, at, text),
                    Ok(Delta::ItemStarted(_) | Delta::ItemFinished(_)) => {}
                    Err(error) => world.note(&process.name, format_args!("model: {error}")),
                }
                Some((delta, script))
            }
        }))
    }
}

/// The numbers of a cut response, which must never reach a tool.
fn numbers(calls: &[ToolCall]) -> Vec<u64> {
    let digits = |call: &ToolCall| call.arguments.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok();
    calls.iter().filter_map(digits).filter(|n| *n >= 1_000_000).collect()
}

/// The last user message of a request, and the number of steps after it.
fn subject(messages: &[Message]) -> (String, usize) {
    let last = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    let text = last.and_then(|at| match &messages[at] {
        Message::User { content, .. } => Some(content.clone()),
        Message::System { .. } | Message::Assistant { .. } | Message::Tool { .. } => None,
    });
    let steps = messages.iter().skip(last.unwrap_or(0)).filter(|message| matches!(message, Message::Assistant { .. })).count();
    (text.unwrap_or_default(), steps)
}

/// The fault that a provider would reject: a call without its result directly after it, or a result without its call.
fn fault_in(messages: &[Message]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Tool { call_id, .. } => match open.iter().position(|id| id == call_id) {
                Some(at) => drop(open.remove(at)),
                None => return Some(format!("a result for {call_id}, which is no open call")),
            },
            Message::System { .. } | Message::User { .. } | Message::Assistant { .. } if !open.is_empty() => {
                return Some(format!("no result for {open:?}"));
            }
            Message::System { .. } | Message::User { .. } => {}
            Message::Assistant { calls, .. } => open = calls.iter().map(|call| call.id.as_str()).collect(),
        }
    }
    (!open.is_empty()).then(|| format!("no result for {open:?} at the end"))
}
