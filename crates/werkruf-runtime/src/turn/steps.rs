//! The steps of a turn: request an answer, run its calls, request again, until there is a text.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use werkruf_contract::{AssistantToken, ErrorCode, FinishReason, State, ToolErrorType, TurnError};
use werkruf_llm::{Answer, HistoryCall, Message, ModelRequest, ToolChoice};
use werkruf_store::{NewUsage, crash};

use super::calls::StepResult;
use super::client_loop::ends_in_loop;
use super::end::unknown_user_error;
use super::model_request::TurnRequest;
use super::provider_items::ProviderItems;
use super::state::{Limit, REPEATS, Reply, Stop, Turn};
use crate::answer_format::AnswerFormat;
use crate::call::{FinishedCall, ModelResult, is_cut};
use crate::client_request::ClientChoice;
use crate::stored::object;
use crate::taint::UntrustedResult;
use crate::timer;

/// The time for the last answer once the turn's own time is up.
const GRACE: Duration = Duration::from_secs(30);

impl Turn {
    /// Works on the turn until it is done, or the process must stop, or another process owns the turn.
    pub(crate) async fn run_until_released<F: Future<Output = ()>>(self: Box<Self>, work: impl FnOnce(Box<Self>) -> F) {
        let scope = Arc::clone(&self.scope);
        // Boxed: a turn's future is large, and it waits most of its life.
        scope.run_until_released(Box::pin(work(self))).await;
    }

    /// Runs to the end and writes how the turn ended.
    pub(crate) async fn run(mut self: Box<Self>) {
        let ended = self.run_steps().await;
        self.end_or_log(ended).await;
    }

    /// Ends the turn of a user who was deactivated while it waited.
    pub(crate) async fn refuse_unknown_user(self: Box<Self>) {
        let error = unknown_user_error(&self.scope.error_texts);
        self.end_or_log(Err(Stop::Failed(error))).await;
    }

    pub(crate) async fn end_or_log(self: Box<Self>, ended: Result<Reply, Stop>) {
        let turn_id = self.scope.turn_id;
        if let Err(error) = Box::pin(self.end(ended)).await {
            // Nothing can be written: the next owner, or recovery, continues from the last commit.
            tracing::error!(%turn_id, %error, "the turn could not be ended");
        }
    }

    /// Runs steps until there is a reply. Outcomes that are not durable yet are staged in the journal.
    pub(crate) async fn run_steps(&mut self) -> Result<Reply, Stop> {
        if let Some(error) = self.over_limit() {
            return Err(Stop::Failed(error));
        }
        // No model reads the history of a keyword's turn, so nothing in it can mislead the call.
        if !self.needs_no_model() {
            Box::pin(self.fit_history()).await?;
        }
        if self.client.is_some() && ends_in_loop(&self.messages) {
            self.progress.limit.get_or_insert(Limit::Repeats);
        }
        loop {
            if let Some(text) = self.keyword_answer() {
                return Ok(self.tool_reply(text));
            }
            if self.progress.answered() >= self.scope.limits.steps {
                self.progress.limit.get_or_insert(Limit::Steps);
            }
            self.offer_reader();
            let answered = match self.given_call() {
                Some(answer) => Ok(answer),
                None => self.request_answer().await,
            };
            let answer = match answered {
                Err(Stop::Deadline) if self.progress.limit != Some(Limit::Deadline) => {
                    self.progress.limit = Some(Limit::Deadline);
                    continue;
                }
                Err(Stop::Deadline) => return Err(Stop::Failed(Limit::Deadline.error(&self.scope.error_texts))),
                answered => answered?,
            };
            crash::point("answered");
            self.count_step(&answer);
            let cut = !answer.executable && !answer.calls.is_empty();
            if self.progress.limit.is_some() || cut || answer.calls.is_empty() {
                return self.last_step(answer, cut);
            }
            let (text, annotations) = (answer.text.clone(), answer.annotations.clone());
            // Boxed: its memory is not needed while the model is waited for.
            let StepResult { first_call, client_calls } = Box::pin(self.run_calls(answer)).await?;
            crash::point("between_rounds");
            if self.scope.running.is_canceled() {
                return Err(Stop::Canceled(String::new()));
            }
            if !client_calls.is_empty() {
                return Ok(Reply { text, annotations, calls: client_calls, ..Reply::default() });
            }
            if let Some(text) = self.direct_answer(first_call) {
                return Ok(self.tool_reply(text));
            }
        }
    }

    /// A tool's own text as the answer, in the place of the model's next step. The text of the step that called the tool is settled.
    fn tool_reply(&mut self, text: String) -> Reply {
        let step = self.progress.step + 1;
        self.scope.journal.publish_token(&AssistantToken { content: text.clone(), step });
        self.progress.text.push_str(&text);
        Reply::text(text)
    }

    /// A model that got a part of a large result can read on, whatever tools its assistant names.
    fn offer_reader(&mut self) {
        let Self { scope, offer, client, messages, .. } = self;
        let Some(reader) = scope.setup.registry.reader(scope.caller.principal.tenant(), client.as_deref()) else { return };
        let has_part =
            |message: &Message| matches!(message, Message::Tool { name, content, .. } if *name == reader.name || is_cut(content));
        if !offer.definitions.iter().any(|tool| tool.name == reader.name) && messages.iter().any(has_part) {
            Arc::make_mut(&mut offer.definitions).push(reader.clone());
        }
    }

    fn count_step(&mut self, answer: &Answer) {
        self.progress.step += 1;
        self.scope.debug("llm_choice", || {
            let calls: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
            object(json!({"step": self.progress.step, "finish": answer.finish, "calls": calls, "text_bytes": answer.text.len()}))
        });
        self.progress.text.push_str(&answer.text);
    }

    /// An answer whose calls do not run: it has none, it was cut off, or a limit was reached.
    fn last_step(&mut self, mut answer: Answer, cut: bool) -> Result<Reply, Stop> {
        let untrusted = self.progress.provider_items.untrusted(&answer);
        // What the provider ran for this answer is written with the end of the turn.
        let Self { scope, progress, context, .. } = self;
        progress.provider_items.settle(scope, progress.step, context, &answer);
        let texts = &self.scope.error_texts;
        if cut && self.progress.limit.is_none() {
            // A length limit cut the answer: its calls may be incomplete.
            let message = texts.text("error-model_cut", &[]);
            return Err(Stop::Failed(TurnError::new(ToolErrorType::Upstream, ErrorCode::ModelIncomplete, message)));
        }
        // A refusal takes the place of a missing text, and of a text that has to have a format.
        let refusal = answer.refusal.take().filter(|_| answer.text.is_empty() || AnswerFormat::is_json(&self.options));
        let is_refusal = refusal.is_some();
        if let Some(refusal) = refusal {
            self.progress.text.push_str(&refusal);
            answer.text = refusal;
        }
        match self.progress.limit {
            Some(limit) if answer.text.is_empty() => return Err(Stop::Failed(limit.error(texts))),
            Some(_) | None => {}
        }
        let reply = Reply::answer(answer, is_refusal, untrusted);
        self.check_format(&reply);
        Ok(reply)
    }

    /// Tells the operator of an answer that does not have the format that the client asked for. The client gets it as it is, as it would from the
    /// provider, and judges it itself: a text that was paid for is not taken away. What was cut off or refused is not checked.
    fn check_format(&self, reply: &Reply) {
        if reply.finish != FinishReason::Stop {
            return;
        }
        if let Some(Ok(format)) = AnswerFormat::of(&self.options)
            && let Some(place) = format.violated_at(&reply.text)
        {
            let (code, turn_id) = (ErrorCode::FormatViolated.as_str(), self.scope.turn_id);
            tracing::warn!(code, %turn_id, place, "the model's answer does not have the format that was asked for");
        }
    }

    async fn request_answer(&mut self) -> Result<Answer, Stop> {
        let (mut usage, mut items) = (Vec::new(), std::mem::take(&mut self.progress.provider_items));
        items.granted.forget_items();
        // An earlier request ran out of time with them.
        items.granted.give_up_sent(&self.scope);
        let (provider, model) = (self.scope.models.gate.chat_provider(), self.assistant.model.as_deref());
        items.granted.end_unreachable(&self.scope, &self.messages, |carry| provider.takes_answer(model, carry));
        items.granted.put_results(&mut self.messages);
        if !self.scope.result_limit.attachments {
            self.drop_attachments();
        }
        let mut answered = self.send_request(&mut usage, &mut items).await;
        // A picture of a tool would make the conversation unusable: it is in every later request.
        if matches!(&answered, Err(Stop::Failed(error)) if error.kind == ToolErrorType::Validation) && self.drop_attachments() {
            tracing::warn!(turn_id = %self.scope.turn_id, "the model refused a request with pictures or files of tools; it is sent without them");
            answered = self.send_request(&mut usage, &mut items).await;
        }
        if let Ok(answer) = &answered {
            items.granted.settle(&self.scope, answer);
        }
        items.granted.put_results(&mut self.messages);
        self.taint.add(items.granted.take_untrusted());
        let abandoned = items.take_abandoned_steps();
        self.progress.provider_items = items;
        self.progress.abandoned += abandoned;
        self.progress.step += abandoned;
        for row in &usage {
            self.scope.count_usage(row);
        }
        answered
    }

    async fn send_request(&self, usage: &mut Vec<NewUsage>, items: &mut ProviderItems) -> Result<Answer, Stop> {
        let mut request = self.model_request();
        request.request.approvals = items.granted.answers();
        request.send(usage, items).await
    }

    /// Leaves the pictures and files of the server's tools out of the history; false where it has none. Its results still name them.
    fn drop_attachments(&mut self) -> bool {
        let client = self.client.as_deref();
        let is_attached = |message: &Message| match message {
            Message::Tool { name, parts, .. } => {
                !parts.is_empty() && !client.is_some_and(|client| client.tools.iter().any(|tool| tool.name == *name))
            }
            Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => false,
        };
        if !self.messages.iter().any(is_attached) {
            return false;
        }
        for message in Arc::make_mut(&mut self.messages).iter_mut().filter(|message| is_attached(message)) {
            if let Message::Tool { parts, .. } = message {
                parts.clear();
            }
        }
        true
    }

    /// The next model request.
    pub(crate) fn model_request(&self) -> TurnRequest<'_> {
        let client = self.client.as_deref();
        let request = ModelRequest {
            model: self.assistant.model.clone(),
            system: Arc::clone(&self.system),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.offer.definitions),
            tool_choice: self.tool_choice(),
            parallel_tool_calls: client.and_then(|client| client.parallel_tool_calls),
            locale: self.locale.clone(),
            today: self.today,
            temperature: client.and_then(|client| client.temperature).or(self.assistant.temperature),
            max_output_tokens: self.assistant.max_output_tokens,
            client_max_tokens: client.and_then(|client| client.max_output_tokens),
            options: self.options.clone(),
            approvals: Arc::default(),
        };
        let deadline = match self.progress.limit {
            Some(Limit::Deadline) => timer::after(GRACE),
            Some(Limit::Steps | Limit::Repeats) | None => self.scope.deadline,
        };
        TurnRequest { scope: &self.scope, step: self.progress.step + 1, deadline, request, context: &self.context }
    }

    /// A client means its own tools. Its choice counts until one of them is called, which ends the turn. Where it means the server's tools it counts
    /// in the first step only: a call forced in every step would never end.
    fn tool_choice(&self) -> ToolChoice {
        let Some(client) = self.client.as_deref() else {
            return if self.progress.limit.is_some() { ToolChoice::None } else { ToolChoice::Auto };
        };
        let is_first = self.progress.answered() == 0;
        match &client.tool_choice {
            _ if self.progress.limit.is_some() => ToolChoice::None,
            ClientChoice::None => ToolChoice::None,
            ClientChoice::Required if is_first || !client.tools.is_empty() => ToolChoice::Required,
            ClientChoice::Named(name) if is_first || client.tools.iter().any(|tool| tool.name == *name) => ToolChoice::Named(name.clone()),
            ClientChoice::Auto | ClientChoice::Required | ClientChoice::Named(_) => ToolChoice::Auto,
        }
    }

    /// Adds a finished step to the history of the next request, and checks the limits of the turn.
    pub(super) fn add_step(&mut self, answer: Answer, calls: Vec<HistoryCall>, finished: &[FinishedCall], state: Option<State>) {
        let messages = Arc::make_mut(&mut self.messages);
        messages.push(Message::Assistant { content: answer.text, calls, carry: answer.carry });
        let mut mistaken = !finished.is_empty();
        for call in finished {
            let id = call.slot.as_ref().map(|slot| slot.id.as_str()).unwrap_or_default();
            let ModelResult { content, parts, .. } = call.outcome.for_model(&call.row, self.scope.result_limit);
            messages.push(Message::Tool { call_id: id.to_owned(), name: call.row.tool_name.clone(), content, parts });
            self.taint.add(call.outcome.untrusted.then(|| UntrustedResult::of(&call.row)));
            let failure = call.outcome.result.as_ref().err();
            mistaken &= failure.is_some_and(|failure| failure.kind == ToolErrorType::Validation && call.outcome.attempt == 0);
        }
        if let Some(state) = state {
            self.state = Arc::new(state);
        }
        self.progress.mistakes = if mistaken { self.progress.mistakes + 1 } else { 0 };
        if self.progress.mistakes >= REPEATS {
            self.progress.limit = Some(Limit::Repeats);
        }
        if timer::left(self.scope.deadline).is_zero() {
            self.progress.limit = Some(Limit::Deadline);
        }
    }

    /// The text of a tool that answers directly and is the only call of its step: no second model request is needed. A tool knows no format.
    fn direct_answer(&self, first_call: usize) -> Option<String> {
        if AnswerFormat::is_json(&self.options) {
            return None;
        }
        let [only] = self.progress.finished.get(first_call..)? else { return None };
        let entry = self.scope.setup.registry.find(&only.row.tool_name)?;
        let success = only.outcome.result.as_ref().ok().filter(|_| entry.spec().answers_directly)?;
        success.message.clone()
    }
}
