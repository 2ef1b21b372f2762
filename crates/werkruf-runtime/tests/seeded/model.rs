//! The language model, as bad as they get: it cuts streams, refuses, stalls, calls tools that do not exist with arguments that
//! are none, and repeats its ids. It also reads each history the way a provider does, and objects where one would.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use werkruf_contract::{BoxFuture, CallKind};
use werkruf_llm::{
    Answer, AnswerStream, Delta, Message, ModelError, ModelFault, ModelRequest, Provider, ProviderItem, TokenUsage, ToolCall, ToolChoice,
};

use crate::mutant::Mutant;
use crate::process::Process;
use crate::world::World;

const TOOLS: [&str; 7] = ["look", "keep", "pay", "say", "sign", "lodge", "nothing"];
/// Steps after which even this model comes to a point.
const PATIENCE: usize = 4;

pub struct Model {
    pub world: Arc<World>,
    pub process: Arc<Process>,
}

/// What the stream says, and how long it takes over it.
type Script = VecDeque<(Duration, Result<Delta, ModelError>)>;

impl Provider for Model {
    fn name(&self) -> &str {
        "scripted"
    }

    fn default_model(&self) -> &str {
        "seeded-1"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        Box::pin(self.answer(request))
    }
}

impl Model {
    async fn answer(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        let (world, dice) = (&self.world, &self.world.dice);
        let (message, depth) = subject(&request.messages);
        let turn_id = world.tables.lock().unwrap().turn_of(&message);
        if let Some(turn_id) = turn_id {
            world.check_lease(&self.process, turn_id, format_args!("a request about {message}"));
        }
        self.process.gate().await;
        if self.strikes(4) {
            world.note(&self.process.name, format_args!("model: no connection"));
            return Err(ModelError::new(ModelFault::Connect, "no connection"));
        }
        if let Some(fault) = fault_in(&request.messages) {
            world.violated(format!("the model was sent a history no provider takes: {fault}"));
        }
        let at = world.ledger.lock().unwrap().record_request(&message, &self.process.name);
        world.note(&self.process.name, format_args!("model asked about {message}, {depth} steps in"));
        world.rest(1, 40).await;
        if world.weather.strikes(dice, world.weather.model_slow) {
            world.rest(1000, 25_000).await;
        }
        self.process.gate().await;
        if self.strikes(4) {
            return Err(self.refusal());
        }
        let script = self.script(&request, depth);
        Ok(self.stream(script, at))
    }

    fn strikes(&self, share: u64) -> bool {
        let weather = &self.world.weather;
        weather.strikes(&self.world.dice, weather.model_fails / share)
    }

    fn refusal(&self) -> ModelError {
        let dice = &self.world.dice;
        let mut error = match dice.below(5) {
            0 => ModelError::new(ModelFault::Refused { status: 400 }, "no"),
            1 => ModelError::new(ModelFault::FirstByte, "nothing came"),
            2 => ModelError::new(ModelFault::Refused { status: 503 }, "later"),
            3 => ModelError::new(ModelFault::Protocol, "what?"),
            _ => ModelError::new(ModelFault::Refused { status: 429 }, "slowly"),
        };
        if matches!(error.fault, ModelFault::Refused { status: 429 }) && dice.permille(700) {
            error.retry_after = Some(if dice.permille(100) { Duration::from_secs(90) } else { dice.ms(100, 4000) });
        }
        self.world.note(&self.process.name, format_args!("model: {error}"));
        error
    }

    fn script(&self, request: &ModelRequest, depth: usize) -> Script {
        let (world, dice) = (&self.world, &self.world.dice);
        let mut script = Script::new();
        let mut answer = Answer { executable: true, finish: Some("stop".to_owned()), ..Answer::default() };
        let ran = self.run(&mut script, &mut answer);
        let calls = request.tool_choice == ToolChoice::Auto && depth < PATIENCE && dice.permille(650);
        if !calls || dice.permille(300) {
            for _ in 0..dice.between(1, 3) {
                let word = format!("w{} ", dice.below(1000));
                answer.text.push_str(&word);
                script.push_back((self.gap(), Ok(Delta::Text(word))));
            }
        }
        if calls {
            let whole = !self.strikes(3);
            answer.calls = self.calls(whole);
            for call in answer.calls.iter_mut().filter(|_| ran > 0) {
                call.output_index += ran;
            }
            answer.executable = whole || world.mutant == Mutant::CutTaken;
        }
        if dice.permille(850) {
            let (input_tokens, output_tokens) = (dice.cast(10, 500), dice.cast(1, 60));
            answer.usage =
                Some(TokenUsage { input_tokens, output_tokens, total_tokens: input_tokens + output_tokens, ..TokenUsage::default() });
        }
        let end = if self.strikes(3) {
            world.count("streams cut");
            world.ledger.lock().unwrap().cut.extend(numbers(&answer.calls));
            match dice.below(3) {
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

    /// Now and then it does something itself first, and says so; it may forget to say how that ended. How many places it took.
    fn run(&self, script: &mut Script, answer: &mut Answer) -> u32 {
        let (world, dice) = (&self.world, &self.world.dice);
        let many = if dice.permille(150) { u32::try_from(dice.between(1, 3)).unwrap() } else { 0 };
        for output_index in 0..many {
            let kind = if dice.permille(500) { "mcp_call" } else { "web_search_call" }.to_owned();
            let begun = ProviderItem { kind, item_id: Some(format!("i{}", dice.below(1000))), output_index, ..ProviderItem::default() };
            let error = dice.permille(200).then(|| "down".into());
            let ended = ProviderItem { arguments: Some("{}".to_owned()), error, ..begun.clone() };
            answer.items.push(ended.clone());
            // One that nobody heard of before stands in the answer alone.
            if dice.permille(850) {
                world.count("calls of the provider's own");
                script.push_back((self.gap(), Ok(Delta::ItemStarted(Box::new(begun)))));
                if dice.permille(850) {
                    script.push_back((self.gap(), Ok(Delta::ItemFinished(Box::new(ended)))));
                }
            }
        }
        many
    }

    fn gap(&self) -> Duration {
        let (dice, weather) = (&self.world.dice, &self.world.weather);
        // Slow enough, between processes, for a text to be kept while it is being written.
        let slow = weather.shared && dice.permille(200);
        if weather.strikes(dice, weather.model_slow / 2) {
            dice.ms(100, 8000)
        } else if slow {
            dice.ms(300, 1500)
        } else {
            dice.ms(0, 20)
        }
    }

    fn calls(&self, whole: bool) -> Vec<ToolCall> {
        let (world, dice) = (&self.world, &self.world.dice);
        let many = if dice.permille(60) { dice.between(5, 8) } else { dice.between(1, 4) };
        let mut calls: Vec<ToolCall> = Vec::new();
        for output_index in 0..u32::try_from(many).unwrap() {
            if let Some(twin) = dice.pick(&calls).filter(|_| dice.permille(200)).cloned() {
                calls.push(ToolCall { output_index, ..twin });
                continue;
            }
            // Few numbers, so that the same call comes again in other steps and turns; a cut answer has its own.
            let n = if whole { dice.below(6) } else { 1_000_000 + dice.below(1_000_000_000) };
            let arguments = match dice.below(20) {
                0 => "{\"n\":".to_owned(),
                1 => "[1]".to_owned(),
                2 => String::new(),
                3 => format!("{{\"n\":\"{n}\"}}"),
                _ => format!("{{\"n\":{n}}}"),
            };
            let call_id = match dice.below(8) {
                0 => None,
                1 => Some(String::new()),
                2 | 3 => Some("call_0".to_owned()),
                _ => Some(format!("c{}", dice.below(100_000))),
            };
            let name = dice.pick(&TOOLS).copied().unwrap_or("look").to_owned();
            calls.push(ToolCall { kind: CallKind::Function, item_id: None, status: None, call_id, output_index, name, arguments });
        }
        if !whole {
            world.count("answers cut off");
            world.ledger.lock().unwrap().cut.extend(numbers(&calls));
        }
        calls
    }

    /// The script, word by word, while the process lives.
    fn stream(&self, script: Script, at: usize) -> AnswerStream {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        futures_util::stream::unfold(script, move |mut script| {
            let (world, process) = (Arc::clone(&world), Arc::clone(&process));
            async move {
                let (gap, said) = script.pop_front()?;
                tokio::time::sleep(gap).await;
                process.gate().await;
                match &said {
                    Ok(Delta::Done(answer)) => {
                        world.ledger.lock().unwrap().asked[at].reported = answer.usage.map(|usage| usage.total_tokens);
                        let calls: Vec<String> = answer.calls.iter().map(|call| format!("{}{}", call.name, call.arguments)).collect();
                        let whole = if answer.executable { "" } else { " CUT" };
                        world.note(&process.name, format_args!("model: {:?} {}{whole}", answer.text, calls.join(" ")));
                    }
                    Ok(Delta::Text(word)) => world.ledger.lock().unwrap().show(&process.name, at, word),
                    Ok(Delta::ItemStarted(_) | Delta::ItemFinished(_)) => {}
                    Err(error) => world.note(&process.name, format_args!("model: {error}")),
                }
                Some((said, script))
            }
        })
        .boxed()
    }
}

/// The numbers of an answer that must never reach a tool: those drawn for it alone.
fn numbers(calls: &[ToolCall]) -> Vec<u64> {
    let digits = |call: &ToolCall| call.arguments.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok();
    calls.iter().filter_map(digits).filter(|n| *n >= 1_000_000).collect()
}

/// The message a request is about, and how many steps came after it.
fn subject(messages: &[Message]) -> (String, usize) {
    let last = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    let text = last.and_then(|at| match &messages[at] {
        Message::User { content, .. } => Some(content.clone()),
        Message::System { .. } | Message::Assistant { .. } | Message::Tool { .. } => None,
    });
    let steps = messages.iter().skip(last.unwrap_or(0)).filter(|message| matches!(message, Message::Assistant { .. })).count();
    (text.unwrap_or_default(), steps)
}

/// What a provider would refuse: a call without its result directly after it, a result without its call.
fn fault_in(messages: &[Message]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Tool { call_id, .. } => match open.iter().position(|id| id == call_id) {
                Some(at) => drop(open.remove(at)),
                None => return Some(format!("a result for {call_id}, which nobody asked for")),
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
