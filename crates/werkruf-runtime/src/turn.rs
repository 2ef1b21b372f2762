//! One message and all the work until its answer: ask the model, walk its calls through the corridor, ask again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use serde_json::json;
use tokio::sync::Semaphore;
use werkruf_contract::{
    AssistantSnapshot, AssistantToken, CallKind, ChatMessage, ErrorEvent, EventType, Failure, State, ToolContext, ToolErrorType, TurnError,
    TurnStatus, Usage, Words, merge_state,
};
use werkruf_llm::{Answer, AskedCall, HistoryCall, Message, ModelRequest, Provider, ToolChoice};
use werkruf_store::{NewMessage, NewUsage, StoreError, TurnChange, crash};

use crate::approve::park;
use crate::ask::{Question, Stop};
use crate::assistant::Assistant;
use crate::corridor::{Arguments, Asked, Finished, Plan, Walk, Walked};
use crate::ground::{Draft, Ground, json};
use crate::history::stored_form;
use crate::record::{announce, object};
use crate::registry::Offer;
use crate::replay::StoredFinal;
use crate::timer;

/// How often the same call may come in one turn, and how often a model may get its calls wrong.
const REPEATS: u32 = 3;
/// What the last word may take once the turn's own time is up.
const GRACE: Duration = Duration::from_secs(30);

/// A chat turn under way.
pub(crate) struct Turn {
    pub(crate) ground: Arc<Ground>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) model_slots: Option<Arc<Semaphore>>,
    pub(crate) assistant: Assistant,
    pub(crate) system: String,
    pub(crate) locale: String,
    pub(crate) today: Date,
    pub(crate) offer: Offer,
    pub(crate) context: ToolContext,
    pub(crate) state: Arc<State>,
    pub(crate) messages: Arc<Vec<Message>>,
    /// Whether older messages were left out.
    pub(crate) trimmed: bool,
    pub(crate) created: bool,
    pub(crate) progress: Progress,
}

/// What a turn has come to so far.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) step: u32,
    /// Unwritten bills.
    pub(crate) usage: Vec<NewUsage>,
    pub(crate) billed: Usage,
    pub(crate) walked: Vec<Walked>,
    /// How many steps asked for this very call.
    repeats: HashMap<String, u32>,
    mistakes: u32,
    /// The limit that made the next answer the last.
    last_word: Option<Limit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
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
        TurnError::new(kind, code, Words::of(locale).say(&format!("error-{code}"), &[]))
    }
}

impl Turn {
    /// Works on it unless the process must go first.
    pub(crate) async fn unless_released<F: Future<Output = ()>>(self, work: impl FnOnce(Self) -> F) {
        let ground = Arc::clone(&self.ground);
        // Boxed: a turn's future is large, and it waits most of its life.
        ground.unless_released(Box::pin(work(self))).await;
    }

    /// Runs to the end and writes how it ended.
    pub(crate) async fn run(mut self) {
        let mut draft = None;
        let ended = self.converse(&mut draft).await;
        let turn_id = self.ground.turn_id;
        if let Err(error) = self.end(ended, draft).await {
            // Nothing can be written: whoever owns the conversation now, or recovery, goes on from the last commit.
            tracing::error!(%turn_id, %error, "the turn could not be brought to an end");
        }
    }

    /// Down and back until there is a text. `draft` holds outcomes that are not durable yet.
    pub(crate) async fn converse(&mut self, draft: &mut Option<Draft>) -> Result<String, Stop> {
        loop {
            if self.progress.step >= self.ground.limits.steps {
                self.progress.last_word.get_or_insert(Limit::Steps);
            }
            let answer = match self.ask(draft.take()).await {
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
            if let Some(limit) = self.progress.last_word {
                return if answer.text.is_empty() { Err(Stop::Failed(limit.error(&self.locale))) } else { Ok(answer.text) };
            }
            if !answer.executable && !answer.calls.is_empty() {
                // Cut off by a length limit: what it asked for may be half of what it meant.
                let message = Words::of(&self.locale).say("error-model_cut", &[]);
                return Err(Stop::Failed(TurnError::new(ToolErrorType::Upstream, "model_incomplete", message)));
            }
            if answer.calls.is_empty() {
                return Ok(if answer.text.is_empty() { answer.refusal.unwrap_or_default() } else { answer.text });
            }
            let (first, outcomes) = self.act(answer).await?;
            *draft = Some(outcomes);
            crash::point("between_rounds");
            if self.ground.live.cancel.is_raised() {
                return Err(Stop::Canceled);
            }
            if let Some(text) = self.direct_answer(first) {
                self.ground.say_text(&AssistantToken { content: text.clone(), step: self.progress.step });
                return Ok(text);
            }
        }
    }

    async fn ask(&mut self, draft: Option<Draft>) -> Result<Answer, Stop> {
        let mut usage = Vec::new();
        let answered = self.question().ask(draft, &mut usage).await;
        for row in usage {
            self.bill(row);
        }
        answered
    }

    /// What the model is asked next.
    pub(crate) fn question(&self) -> Question<'_> {
        let last_word = self.progress.last_word.is_some();
        let request = ModelRequest {
            model: self.assistant.model.clone(),
            system: self.system.clone(),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.offer.definitions),
            tool_choice: if last_word { ToolChoice::None } else { ToolChoice::Auto },
            parallel_tool_calls: None,
            options: Default::default(),
            locale: self.locale.clone(),
            today: self.today,
            temperature: self.assistant.temperature,
            max_output_tokens: self.assistant.max_output_tokens,
        };
        let deadline = match self.progress.last_word {
            Some(Limit::Deadline) => timer::after(GRACE),
            Some(Limit::Steps | Limit::Repeats) | None => self.ground.deadline,
        };
        let slots = self.model_slots.as_deref();
        Question { ground: &self.ground, provider: &*self.provider, slots, step: self.progress.step + 1, deadline, request }
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

    /// Commit B, then the calls. Returns where this step's calls begin, and their last outcomes, not yet durable.
    async fn act(&mut self, answer: Answer) -> Result<(usize, Draft), Stop> {
        let taken = self.taken_ids(&answer.calls).await?;
        let asked = self.asked(&answer, &taken);
        let calls: Vec<HistoryCall> = asked
            .iter()
            .map(|call| HistoryCall {
                id: call.history_id.clone().unwrap_or_default(),
                name: call.name.clone(),
                arguments: match &call.arguments {
                    Arguments::Raw(raw) => raw.clone(),
                    Arguments::Given(value) => value.to_string(),
                },
            })
            .collect();
        let ground = Arc::clone(&self.ground);
        let walk =
            Walk { ground: &ground, step: self.progress.step, state: &self.state, context: &self.context, earlier: &self.progress.walked };
        let prepared = walk.prepare(asked).await?;
        let mut draft = ground.draft();
        let tokens = answer.usage.map(|usage| usage.output_tokens);
        draft.write.messages.push(assistant_message(&ground, &answer.text, Some(stored_form(&calls)), tokens));
        draft.write.usage.append(&mut self.progress.usage);
        draft.write.turn =
            Some(TurnChange { status: TurnStatus::Acting, step: self.progress.step, error: None, message: None, seen: None });
        if !answer.text.is_empty() {
            let snapshot = AssistantSnapshot { content: answer.text.clone(), step: self.progress.step, turn_id: ground.turn_id };
            draft.event(EventType::AssistantSnapshot, &snapshot);
        }
        for call in &prepared {
            if call.row.started_at.is_some() {
                announce(&mut draft, &call.row);
            }
            if let Plan::Await(awaited) = &call.plan {
                draft.write.approvals.extend(awaited.wish.clone());
            }
            draft.write.calls.push(call.row.clone());
        }
        crash::point("before_b");
        ground.commit(draft).await?;
        crash::point("after_b");
        let Finished { walked, parked, draft: outcomes } = walk.finish(prepared).await?;
        if !parked.is_empty() {
            park(&ground, outcomes, self.progress.step, parked).await?;
            return Err(Stop::Waiting);
        }
        self.remember(answer.text, calls, &walked);
        let first = self.progress.walked.len();
        self.progress.walked.extend(walked);
        Ok((first, outcomes))
    }

    /// The model's calls as the corridor takes them, with ids the conversation does not know yet.
    fn asked(&mut self, answer: &Answer, taken: &[String]) -> Vec<Asked> {
        let history = Arc::clone(&self.messages);
        let mut used: HashSet<&str> = taken.iter().map(String::as_str).collect();
        if answer.calls.iter().any(|call| call.call_id.is_some()) {
            used.extend(history.iter().filter_map(|message| match message {
                Message::Tool { call_id, .. } => Some(call_id.as_str()),
                Message::User { .. } | Message::Assistant { .. } => None,
            }));
        }
        let mut repeated: HashMap<String, bool> = HashMap::new();
        let mut asked = Vec::with_capacity(answer.calls.len());
        for (at, call) in answer.calls.iter().enumerate() {
            let job_id = self.ground.clock.new_id();
            let wire = call.call_id.as_deref().filter(|id| !id.is_empty());
            let history_id = match wire {
                Some(id) if used.insert(id) => id.to_owned(),
                Some(_) | None => format!("call_{job_id}"),
            };
            let refused = if at >= self.ground.limits.calls_per_step {
                Some(Failure::validation(
                    "too_many_calls",
                    format!("Only the first {} calls of one answer are run. Ask for fewer at once.", self.ground.limits.calls_per_step),
                ))
            } else {
                self.repeated(call, &mut repeated)
            };
            asked.push(Asked {
                job_id,
                kind: CallKind::Function,
                item_id: call.item_id.clone(),
                call_id: call.call_id.clone(),
                response_id: answer.response_id.clone(),
                output_index: u32::try_from(at).unwrap_or(u32::MAX),
                name: call.name.clone(),
                arguments: Arguments::Raw(call.arguments.clone()),
                history_id: Some(history_id),
                retry_of: None,
                idempotency_key: None,
                refused,
            });
        }
        asked
    }

    /// Ids that the conversation has used outside the messages at hand; those at hand need no look-up.
    async fn taken_ids(&self, calls: &[AskedCall]) -> Result<Vec<String>, StoreError> {
        let ids: Vec<String> = calls.iter().filter_map(|call| call.call_id.clone()).collect();
        match self.ground.conversation_id {
            Some(conversation_id) if self.trimmed && !ids.is_empty() => {
                self.ground.turns.taken_call_ids(self.ground.fence.tenant_id, conversation_id, ids).await
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// The same call in too many steps of one turn is not run again. Copies inside one step count once.
    fn repeated(&mut self, call: &AskedCall, this_step: &mut HashMap<String, bool>) -> Option<Failure> {
        let key = format!("{}\n{}", call.name, call.arguments);
        let over = *this_step.entry(key.clone()).or_insert_with(|| {
            let seen = self.progress.repeats.entry(key).or_default();
            *seen += 1;
            *seen > REPEATS
        });
        if over {
            self.progress.last_word = Some(Limit::Repeats);
        }
        over.then(|| Failure::validation("repeat_limit", "This very call was made several times already. Answer with what you have."))
    }

    /// The step becomes part of what the model is asked next, and of what limits the turn.
    fn remember(&mut self, text: String, calls: Vec<HistoryCall>, walked: &[Walked]) {
        let messages = Arc::make_mut(&mut self.messages);
        messages.push(Message::Assistant { content: text, calls, carry: None });
        let mut state: Option<State> = None;
        let mut mistaken = !walked.is_empty();
        for call in walked {
            messages.push(Message::Tool {
                call_id: call.seat.as_ref().map(|seat| seat.id.clone()).unwrap_or_default(),
                name: call.row.tool_name.clone(),
                content: call.ended.for_model().0,
            });
            mistaken &= call.ended.result.as_ref().is_err_and(|f| f.kind == ToolErrorType::Validation && call.ended.attempt == 0);
            if let Ok(success) = &call.ended.result
                && let Some(patch) = &success.state_patch
            {
                merge_state(state.get_or_insert_with(|| (*self.state).clone()), patch.clone());
            }
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
    pub(crate) async fn end(mut self, ended: Result<String, Stop>, draft: Option<Draft>) -> Result<(), StoreError> {
        let ground = Arc::clone(&self.ground);
        let mut draft = draft.unwrap_or_else(|| ground.draft());
        draft.write.now = ground.clock.now();
        draft.write.usage.append(&mut self.progress.usage);
        match ended {
            Ok(text) => self.complete(&mut draft, text),
            Err(Stop::Canceled) => {
                let error = TurnError::new(ToolErrorType::Fatal, "canceled", Words::of(&self.locale).say("error-canceled", &[]));
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

    fn complete(&self, draft: &mut Draft, text: String) {
        let ground = &self.ground;
        let tokens = Some(self.progress.billed.output_tokens).filter(|tokens| *tokens > 0);
        draft.write.messages.push(assistant_message(ground, &text, None, tokens));
        draft.write.turn = Some(TurnChange {
            status: TurnStatus::Completed,
            step: self.progress.step,
            error: None,
            message: Some(text.clone()),
            seen: None,
        });
        let stored = StoredFinal {
            conversation_id: ground.stream_id(),
            turn_id: ground.turn_id,
            created: self.created,
            status: TurnStatus::Completed,
            message: ChatMessage { role: "assistant".to_owned(), content: text },
            client_calls: Vec::new(),
            usage: self.progress.billed.clone(),
        };
        let row = json(&stored);
        let results = self.progress.walked.iter().map(|call| call.ended.result(&call.row)).collect();
        let heard = json(&stored.complete((*self.state).clone(), results));
        draft.event_text(EventType::Final, row, Some(heard));
    }
}

fn assistant_message(ground: &Ground, text: &str, tool_calls: Option<String>, tokens: Option<i64>) -> NewMessage {
    NewMessage {
        id: ground.clock.new_id(),
        role: "assistant",
        content: text.to_owned(),
        tool_calls,
        tool_call_id: None,
        tool_name: None,
        status: None,
        metadata: None,
        tokens,
    }
}

/// The turn ends without an answer, and says so.
pub(crate) fn fail(ground: &Ground, draft: &mut Draft, status: TurnStatus, step: u32, error: TurnError) {
    draft.write.turn = Some(TurnChange { status, step, error: Some((json(&error), error.code.clone())), message: None, seen: None });
    let event = ErrorEvent {
        kind: error.kind,
        code: error.code,
        message: error.message,
        retry_after_ms: error.retry_after_ms,
        turn_id: ground.turn_id,
    };
    draft.event(EventType::Error, &event);
}
