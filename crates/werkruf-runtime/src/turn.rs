//! One message and all the work until its answer: ask the model, walk its calls through the corridor, ask again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use werkruf_contract::{
    AssistantToken, CallStatus, ChatMessage, ClientCall, ErrorEvent, EventType, FinishReason, State, Texts, ToolContext, ToolErrorType,
    TurnError, TurnStatus, Usage, Uuid,
};
use werkruf_llm::{Answer, HistoryCall, Message, ModelRequest, Provider, TokenUsage, ToolChoice};
use werkruf_store::{NewMessage, NewUsage, StoreError, TurnChange, crash};

use crate::act::Acted;
use crate::ask::{Question, Stop};
use crate::assistant::Assistant;
use crate::brought::{ClientChoice, ClientRequest};
use crate::corridor::Walked;
use crate::ground::{Draft, Ground, json};
use crate::history::Origin;
use crate::provided::Provided;
use crate::record::object;
use crate::registry::Offer;
use crate::replay::StoredFinal;
use crate::runtime::House;
use crate::seen::digest_after_answer;
use crate::timer;

/// How often the same call may come in one turn, and how often a model may get its calls wrong.
pub(crate) const REPEATS: u32 = 3;
/// What the last word may take once the turn's own time is up.
const GRACE: Duration = Duration::from_secs(30);

/// A chat turn under way.
pub(crate) struct Turn {
    pub(crate) house: Arc<House>,
    pub(crate) ground: Arc<Ground>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) model_slots: Option<Arc<Semaphore>>,
    pub(crate) assistant: Assistant,
    pub(crate) system: Arc<str>,
    pub(crate) locale: String,
    pub(crate) today: Date,
    pub(crate) offer: Offer,
    pub(crate) context: ToolContext,
    pub(crate) state: Arc<State>,
    pub(crate) messages: Arc<Vec<Message>>,
    /// Beside each message where it is from, until the history was brought within its room.
    pub(crate) origins: Option<Vec<Origin>>,
    /// Whether older messages were left out.
    pub(crate) trimmed: bool,
    pub(crate) created: bool,
    /// What a client of the OpenAI doors brought along.
    pub(crate) brought: Option<Arc<ClientRequest>>,
    /// Its other wishes for the model.
    pub(crate) options: Arc<Map<String, Value>>,
    pub(crate) progress: Progress,
}

/// What a turn has to say in the end.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// Calls for the client to run; their assistant message is written already.
    pub(crate) calls: Vec<ClientCall>,
    /// What the provider wants to see again with the text.
    pub(crate) carry: Option<Value>,
    pub(crate) finish: FinishReason,
    /// How long the text is, where the provider has counted it.
    pub(crate) tokens: Option<i64>,
}

impl Said {
    /// A text that ends the turn.
    fn text(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// An answer that is the last.
    fn answer(answer: Answer) -> Self {
        let (finish, tokens) = (answer.finish_reason(), answer.usage.map(said_tokens));
        Self { text: answer.text, calls: Vec::new(), carry: answer.carry, finish, tokens }
    }
}

/// What a turn has come to so far.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) step: u32,
    /// Steps whose answer was given up; they have numbers and rows, but no answer.
    pub(crate) given_up: u32,
    /// What the provider runs itself in the answer at hand.
    pub(crate) provided: Provided,
    /// Messages that were counted, with their tokens; not yet written.
    pub(crate) counted: Vec<(Uuid, i64)>,
    /// Unwritten bills.
    pub(crate) usage: Vec<NewUsage>,
    pub(crate) billed: Usage,
    pub(crate) walked: Vec<Walked>,
    /// How many steps asked for this very call.
    pub(crate) repeats: HashMap<String, u32>,
    mistakes: u32,
    /// The limit that made the next answer the last.
    pub(crate) last_word: Option<Limit>,
    /// All the text of the turn so far, step by step.
    pub(crate) said: String,
}

impl Progress {
    /// Steps that had an answer.
    const fn answered(&self) -> u32 {
        self.step.saturating_sub(self.given_up)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Steps,
    Repeats,
    Deadline,
}

impl Limit {
    fn error(self, locale: &str) -> TurnError {
        let (kind, code) = match self {
            Self::Steps => (ToolErrorType::Fatal, "step_limit"),
            Self::Repeats => (ToolErrorType::Fatal, "repeat_limit"),
            Self::Deadline => (ToolErrorType::Timeout, "turn_deadline"),
        };
        TurnError::new(kind, code, Texts::of(locale).text(&format!("error-{code}"), &[]))
    }
}

impl Turn {
    /// Works on it unless the process must go first.
    pub(crate) async fn unless_released<F: Future<Output = ()>>(self: Box<Self>, work: impl FnOnce(Box<Self>) -> F) {
        let ground = Arc::clone(&self.ground);
        // Boxed: a turn's future is large, and it waits most of its life.
        ground.unless_released(Box::pin(work(self))).await;
    }

    /// Runs to the end and writes how it ended.
    pub(crate) async fn run(mut self: Box<Self>) {
        let mut draft = None;
        let ended = self.converse(&mut draft).await;
        let turn_id = self.ground.turn_id;
        if let Err(error) = Box::pin(self.end(ended, draft)).await {
            // Nothing can be written: whoever owns the conversation now, or recovery, goes on from the last commit.
            tracing::error!(%turn_id, %error, "the turn could not be brought to an end");
        }
    }

    /// Down and back until there is a text. `draft` holds outcomes that are not durable yet.
    pub(crate) async fn converse(&mut self, draft: &mut Option<Draft>) -> Result<Said, Stop> {
        Box::pin(self.fit()).await?;
        loop {
            if self.progress.answered() >= self.ground.limits.steps {
                self.progress.last_word.get_or_insert(Limit::Steps);
            }
            let claimed = self.claimed(draft);
            let asked = match claimed {
                Some(answer) => Ok(answer),
                None => self.ask(draft.take()).await,
            };
            let answer = match asked {
                Err(Stop::Deadline) if self.progress.last_word != Some(Limit::Deadline) => {
                    self.progress.last_word = Some(Limit::Deadline);
                    continue;
                }
                Err(Stop::Deadline) => return Err(Stop::Failed(Limit::Deadline.error(&self.locale))),
                answered => answered?,
            };
            crash::point("answered");
            self.progress.step += 1;
            self.ground.debug("llm_choice", || {
                let calls: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
                object(json!({"step": self.progress.step, "finish": answer.finish, "calls": calls, "text_bytes": answer.text.len()}))
            });
            self.progress.said.push_str(&answer.text);
            let cut = !answer.executable && !answer.calls.is_empty();
            if self.progress.last_word.is_some() || cut || answer.calls.is_empty() {
                self.settle_items(&answer, draft);
            }
            if let Some(limit) = self.progress.last_word {
                return if answer.text.is_empty() { Err(Stop::Failed(limit.error(&self.locale))) } else { Ok(Said::answer(answer)) };
            }
            if cut {
                // Cut off by a length limit: what it asked for may be half of what it meant.
                let message = Texts::of(&self.locale).text("error-model_cut", &[]);
                return Err(Stop::Failed(TurnError::new(ToolErrorType::Upstream, "model_incomplete", message)));
            }
            if answer.calls.is_empty() {
                return Ok(self.last_answer(answer));
            }
            let text = answer.text.clone();
            // Boxed: its room is not needed while the model is waited for.
            let Acted { first, draft: outcomes, theirs } = Box::pin(self.act(answer)).await?;
            *draft = Some(outcomes);
            crash::point("between_rounds");
            if self.ground.live.cancel.is_raised() {
                return Err(Stop::Canceled);
            }
            if !theirs.is_empty() {
                return Ok(Said { text, calls: theirs, ..Said::default() });
            }
            if let Some(text) = self.direct_answer(first) {
                self.ground.say_text(&AssistantToken { content: text.clone(), step: self.progress.step });
                self.progress.said.push_str(&text);
                return Ok(Said::text(text));
            }
        }
    }

    /// What the provider ran for an answer that is the last, in the write that ends the turn.
    fn settle_items(&mut self, answer: &Answer, draft: &mut Option<Draft>) {
        if !answer.items.is_empty() || !self.progress.provided.is_empty() {
            let draft = draft.get_or_insert_with(|| self.ground.draft());
            self.progress.provided.settle(&self.ground, draft, self.progress.step, &self.context, answer);
        }
    }

    /// An answer without calls; a refusal stands for the text that is not there.
    fn last_answer(&mut self, mut answer: Answer) -> Said {
        if answer.text.is_empty() {
            answer.text = answer.refusal.take().unwrap_or_default();
            self.progress.said.push_str(&answer.text);
        }
        Said::answer(answer)
    }

    async fn ask(&mut self, draft: Option<Draft>) -> Result<Answer, Stop> {
        let (mut usage, mut provided) = (Vec::new(), std::mem::take(&mut self.progress.provided));
        let answered = self.question().ask(draft, &mut usage, &mut provided).await;
        let given_up = std::mem::take(&mut provided.given_up);
        self.progress.provided = provided;
        self.progress.given_up += given_up;
        self.progress.step += given_up;
        for row in usage {
            self.bill(row);
        }
        answered
    }

    /// What the model is asked next.
    pub(crate) fn question(&self) -> Question<'_> {
        let brought = self.brought.as_deref();
        let request = ModelRequest {
            model: self.assistant.model.clone(),
            system: Arc::clone(&self.system),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.offer.definitions),
            tool_choice: self.tool_choice(),
            parallel_tool_calls: brought.and_then(|brought| brought.parallel_tool_calls),
            locale: self.locale.clone(),
            today: self.today,
            temperature: brought.and_then(|brought| brought.temperature).or(self.assistant.temperature),
            max_output_tokens: self.assistant.max_output_tokens,
            client_max_tokens: brought.and_then(|brought| brought.max_output_tokens),
            options: self.options.clone(),
        };
        let deadline = match self.progress.last_word {
            Some(Limit::Deadline) => timer::after(GRACE),
            Some(Limit::Steps | Limit::Repeats) | None => self.ground.deadline,
        };
        let slots = self.model_slots.as_deref();
        let (provider, step) = (&*self.provider, self.progress.step + 1);
        Question { ground: &self.ground, provider, slots, step, deadline, request, context: &self.context }
    }

    /// What a client forces is forced once: a call in every step would never end.
    fn tool_choice(&self) -> ToolChoice {
        match self.brought.as_deref().map(|brought| &brought.tool_choice) {
            _ if self.progress.last_word.is_some() => ToolChoice::None,
            Some(ClientChoice::None) => ToolChoice::None,
            Some(ClientChoice::Required) if self.progress.answered() == 0 => ToolChoice::Required,
            Some(ClientChoice::Named(name)) if self.progress.answered() == 0 => ToolChoice::Named(name.clone()),
            Some(ClientChoice::Auto | ClientChoice::Required | ClientChoice::Named(_)) | None => ToolChoice::Auto,
        }
    }

    pub(crate) fn bill(&mut self, row: NewUsage) {
        let billed = &mut self.progress.billed;
        billed.input_tokens += row.tokens_prompt;
        billed.cached_tokens += row.tokens_cached;
        billed.output_tokens += row.tokens_completion;
        billed.reasoning_tokens += row.tokens_reasoning;
        billed.total_tokens += row.tokens_total;
        billed.add_cost(row.cost_nano_usd);
        billed.model_calls += 1;
        self.progress.usage.push(row);
    }

    /// The step becomes part of what the model is asked next, and of what limits the turn.
    pub(crate) fn remember(&mut self, answer: Answer, calls: Vec<HistoryCall>, walked: &[Walked], state: Option<State>) {
        let messages = Arc::make_mut(&mut self.messages);
        messages.push(Message::Assistant { content: answer.text, calls, carry: answer.carry });
        let mut mistaken = !walked.is_empty();
        for call in walked {
            messages.push(Message::Tool {
                call_id: call.seat.as_ref().map(|seat| seat.id.clone()).unwrap_or_default(),
                name: call.row.tool_name.clone(),
                content: call.ended.for_model().0,
            });
            mistaken &= call.ended.result.as_ref().is_err_and(|f| f.kind == ToolErrorType::Validation && call.ended.attempt == 0);
        }
        if let Some(state) = state {
            self.state = Arc::new(state);
        }
        self.progress.mistakes = if mistaken { self.progress.mistakes + 1 } else { 0 };
        if self.progress.mistakes >= REPEATS {
            self.progress.last_word = Some(Limit::Repeats);
        }
        if timer::left(self.ground.deadline).is_zero() {
            self.progress.last_word = Some(Limit::Deadline);
        }
    }

    /// A tool that answers for itself, alone in its step, needs no second model call.
    fn direct_answer(&self, first: usize) -> Option<String> {
        let [only] = self.progress.walked.get(first..)? else { return None };
        let entry = self.ground.setup.registry.find(&only.row.tool_name)?;
        let success = only.ended.result.as_ref().ok().filter(|_| entry.spec().answers_directly)?;
        success.message.clone()
    }

    /// Commit D: how it ended, once and for all.
    pub(crate) async fn end(mut self: Box<Self>, ended: Result<Said, Stop>, draft: Option<Draft>) -> Result<(), StoreError> {
        let ground = Arc::clone(&self.ground);
        let mut draft = draft.unwrap_or_else(|| ground.draft());
        draft.write.now = ground.clock.now();
        draft.write.usage.append(&mut self.progress.usage);
        draft.write.counted.append(&mut self.progress.counted);
        let canceled = matches!(ended, Err(Stop::Canceled));
        self.progress.provided.close(&ground, &mut draft, if canceled { CallStatus::Canceled } else { CallStatus::Failed });
        match ended {
            Ok(said) => self.complete(&mut draft, said),
            Err(Stop::Canceled) => {
                let error = TurnError::new(ToolErrorType::Fatal, "canceled", Texts::of(&self.locale).text("error-canceled", &[]));
                fail(&ground, &mut draft, TurnStatus::Canceled, self.progress.step, error);
            }
            Err(Stop::Failed(error)) => fail(&ground, &mut draft, TurnStatus::Failed, self.progress.step, error),
            Err(Stop::Deadline) => fail(&ground, &mut draft, TurnStatus::Failed, self.progress.step, Limit::Deadline.error(&self.locale)),
            Err(Stop::Waiting) => return Ok(()),
            Err(Stop::Store(error)) => return Err(error),
        }
        crash::point("before_d");
        ground.commit(draft).await?;
        crash::point("after_d");
        Ok(())
    }

    fn complete(&self, draft: &mut Draft, said: Said) {
        let ground = &self.ground;
        let Said { text, calls, carry, finish, tokens } = said;
        if calls.is_empty() {
            let mut message = assistant_message(ground, &text, None, carry.as_ref(), tokens);
            if finish != FinishReason::Stop {
                // The log is not kept for ever.
                message.metadata = Some(json!({"carry": carry, "finish_reason": finish}).to_string());
            }
            draft.write.messages.push(message);
        }
        let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
        let seen = self.brought.as_ref().map(|brought| digest_after_answer(&brought.seen, &self.progress.said, &ids));
        draft.write.turn = Some(TurnChange {
            status: TurnStatus::Completed,
            step: self.progress.step,
            error: None,
            message: Some(text.clone()),
            transcript_digest: seen,
        });
        let stored = StoredFinal {
            conversation_id: ground.stream_id(),
            turn_id: ground.turn_id,
            created: self.created,
            status: TurnStatus::Completed,
            message: ChatMessage { role: "assistant".to_owned(), content: text },
            client_calls: calls,
            finish_reason: finish,
            usage: self.progress.billed.clone(),
        };
        let row = json(&stored);
        let results = self.progress.walked.iter().map(|call| call.ended.result(&call.row)).collect();
        let heard = json(&stored.complete((*self.state).clone(), results));
        draft.event_text(EventType::Final, row, Some(heard));
    }
}

/// What an answer takes in a history: thoughts are not sent again as text.
pub(crate) const fn said_tokens(usage: TokenUsage) -> i64 {
    usage.output_tokens.saturating_sub(usage.reasoning_tokens)
}

/// An answer as a row. What its provider wants to see again stands beside it.
pub(crate) fn assistant_message(
    ground: &Ground,
    text: &str,
    tool_calls: Option<String>,
    carry: Option<&Value>,
    tokens: Option<i64>,
) -> NewMessage {
    NewMessage {
        id: ground.clock.new_id(),
        role: "assistant",
        content: text.to_owned(),
        tool_calls,
        tool_call_id: None,
        tool_name: None,
        status: None,
        metadata: carry.map(|carry| json!({"carry": carry}).to_string()),
        tokens,
    }
}

/// The turn ends without an answer, and says so.
pub(crate) fn fail(ground: &Ground, draft: &mut Draft, status: TurnStatus, step: u32, error: TurnError) {
    draft.write.turn =
        Some(TurnChange { status, step, error: Some((json(&error), error.code.clone())), message: None, transcript_digest: None });
    let event = ErrorEvent {
        kind: error.kind,
        code: error.code,
        message: error.message,
        retry_after_ms: error.retry_after_ms,
        turn_id: ground.turn_id,
    };
    draft.event(EventType::Error, &event);
}
