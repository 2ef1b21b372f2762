//! Model access for tools and for work outside a turn: each request passes the gate and has a usage row.
//!
//! Invariants: the usage row of a request for a text is durable, with estimated tokens, before the request leaves, so that a crash loses none. In
//! a turn the final row is staged in the turn's journal; outside a turn it is written at once. A request for vectors reserves no row, because a search
//! must not wait for a commit: a crash before the call's outcome is committed loses that row.

use std::sync::Arc;

use futures_util::StreamExt;
use werkruf_contract::{
    BoxFuture, Clock, Deadline, ErrorCode, Failure, ModelSource, Models, NoModels, TextAnswer, TextRequest, ToolErrorType, Uuid,
};
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{Answer, Delta, Message, ModelError, ModelFault, ModelRequest, TokenUsage, ToolChoice, WebSearchRequest, in_time};
use werkruf_store::{NewUsage, UsageOwner, UsageRows};

use super::gate::ModelGate;
use super::usage::{Meter, Sending, Settlement};
use crate::metrics::Metrics;
use crate::trace::TurnTrace;

/// Takes the usage rows of requests that belong to a turn.
type StageUsage = Arc<dyn Fn(NewUsage) + Send + Sync>;

/// What all accesses of a process share.
#[derive(Clone)]
pub struct ModelAccounts {
    pub gate: Arc<ModelGate>,
    pub usage: Arc<dyn UsageRows>,
    /// Of requests outside a turn; a turn has its own.
    pub prices: Arc<PriceTable>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
}

/// The tool call that makes requests.
#[derive(Clone)]
pub(crate) struct ToolCall {
    pub(crate) id: Uuid,
    pub(crate) tool: String,
    /// Adds a usage row to the turn's journal.
    pub(crate) stage: StageUsage,
    pub(crate) trace: TurnTrace,
}

/// Access to models in the name of one user.
#[derive(Clone)]
pub(crate) struct ModelAccess {
    accounts: ModelAccounts,
    owner: UsageOwner,
    /// The tool call that makes the requests, and its journal.
    call: Option<ToolCall>,
    key_id: Option<Uuid>,
}

impl ModelSource for ModelAccounts {
    fn models_for(&self, tenant_id: Uuid, user_id: &str) -> Arc<dyn Models> {
        let owner = UsageOwner { tenant_id, user_id: user_id.to_owned(), ..UsageOwner::default() };
        Arc::new(ModelAccess { accounts: self.clone(), owner, call: None, key_id: None })
    }

    fn embedding_model(&self) -> Option<&str> {
        self.gate.embeddings().map(|embeddings| embeddings.model())
    }
}

impl std::fmt::Debug for ModelAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelAccess").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl ModelAccess {
    /// Access for a tool call of a turn.
    pub(crate) const fn for_call(accounts: ModelAccounts, owner: UsageOwner, call: ToolCall, key_id: Option<Uuid>) -> Self {
        Self { accounts, owner, call: Some(call), key_id }
    }

    fn meter<'a>(&'a self, provider: &'a str, model: &'a str, operation: &'static str, sent_bytes: usize) -> Meter<'a> {
        Meter {
            provider,
            model,
            operation,
            sent_bytes,
            call_id: self.call.as_ref().map(|call| call.id),
            tool_name: self.call.as_ref().map(|call| call.tool.as_str()),
            key_id: self.key_id,
            prices: &self.accounts.prices,
            clock: &self.accounts.clock,
            metrics: &self.accounts.metrics,
            trace: self.trace(),
            input: None,
        }
    }

    fn trace(&self) -> Option<&TurnTrace> {
        self.call.as_ref().map(|call| &call.trace)
    }

    /// A meter whose span shows the request, where spans show content.
    fn text_meter<'a>(&'a self, provider: &'a str, model: &'a str, request: &TextRequest) -> Meter<'a> {
        let input = self.trace().and_then(|trace| {
            let system = trace.content(|content| vec![content.part(&request.system)].into())?;
            Some((system, trace.content(|content| content.texts(request.messages.iter().map(String::as_str)))?))
        });
        Meter { input, ..self.meter(provider, model, "ask_gpt", bytes(request)) }
    }

    /// Writes a row by itself. A failed write is logged; it must not cost the answer.
    async fn put(&self, row: NewUsage) {
        if let Err(error) = self.accounts.usage.put_usage(self.owner.clone(), row, self.accounts.clock.now()).await {
            let turn_id = self.owner.turn_id.map(tracing::field::display);
            tracing::error!(turn_id, tenant_id = %self.owner.tenant_id, %error, "the usage row of a model request could not be written");
        }
    }

    /// Writes the estimated row of a request that is about to leave. Returns the start of the request and the id of the row.
    async fn reserve(&self, meter: &Meter<'_>) -> (Sending, Option<Uuid>) {
        let sending = Sending::starting(&self.accounts.clock);
        let row = meter.reservation(&sending);
        let id = row.as_ref().map(|row| row.id);
        if let Some(row) = row {
            self.put(row).await;
        }
        (sending, id)
    }

    /// Replaces the reserved row, or writes a new one. A request that was never sent has no row.
    async fn settle(&self, meter: &Meter<'_>, (sending, reserved): (&Sending, Option<Uuid>), settlement: &Settlement<'_>) {
        match (meter.settle(sending, settlement), reserved) {
            (Some(mut row), reserved) => {
                row.id = reserved.unwrap_or(row.id);
                match &self.call {
                    Some(call) => (call.stage)(row),
                    None => self.put(row).await,
                }
            }
            (None, Some(id)) => {
                if let Err(error) = self.accounts.usage.delete_usage(self.owner.tenant_id, id).await {
                    tracing::error!(usage_id = %id, %error, "the usage row of a request that was not sent could not be deleted");
                }
            }
            (None, None) => {}
        }
    }

    async fn request_text(&self, request: TextRequest, deadline: Deadline) -> Result<TextAnswer, Failure> {
        let gate = &self.accounts.gate;
        let provider = gate.chat_provider();
        if !provider.writes_text() {
            return Err(NoModels::not_configured());
        }
        let meter = self.text_meter(provider.name(), provider.default_model(), &request);
        let Some(admission) = in_time(deadline, gate.admit()).await else { return Err(late().nothing_happened()) };
        let (sending, reserved) = self.reserve(&meter).await;
        let mut received = String::new();
        let receiving = async {
            let mut stream = admission.send(model_request(request)).await?;
            sending.identify(stream.request_id());
            while let Some(delta) = stream.next().await {
                match delta? {
                    Delta::Text(text) => received.push_str(&text),
                    Delta::ItemStarted(_) | Delta::ItemFinished(_) => {}
                    Delta::Done(answer) => {
                        sending.complete(&answer, self.trace());
                        return Ok(*answer);
                    }
                }
            }
            Err(ModelError::new(ModelFault::Incomplete, "the stream ended without its terminal event"))
        };
        match in_time(deadline, receiving).await {
            Some(Ok(answer)) => {
                let answer = text_answer(answer, provider.default_model());
                let (usage, text) = (answer.1, answer.0.text.as_str());
                self.settle(&meter, (&sending, reserved), &Settlement::Answered { usage, text, model: Some(&answer.0.model) }).await;
                Ok(answer.0)
            }
            Some(Err(error)) => {
                self.settle(&meter, (&sending, reserved), &Settlement::Failed { error: &error, received: &received }).await;
                Err(failure(&error))
            }
            None => {
                self.settle(&meter, (&sending, reserved), &Settlement::Aborted { received: &received }).await;
                Err(late())
            }
        }
    }

    async fn request_web_search(&self, request: TextRequest, deadline: Deadline) -> Result<TextAnswer, Failure> {
        let gate = &self.accounts.gate;
        let Some(web_search) = gate.web_search() else { return Err(NoModels::not_configured()) };
        let meter = self.text_meter(web_search.name(), web_search.model(), &request);
        let Some(admission) = in_time(deadline, gate.admit()).await else { return Err(late().nothing_happened()) };
        let (sending, reserved) = self.reserve(&meter).await;
        let country = request.locale.split(['-', '_']).nth(1).filter(|code| code.len() == 2).map(str::to_ascii_uppercase);
        let TextRequest { system, messages, temperature, .. } = request;
        let request = WebSearchRequest { system, messages, temperature, country };
        match admission.search_web(web_search, &request, deadline).await {
            Ok(answer) => {
                sending.identify(answer.request_id.as_deref());
                sending.searched(answer.charged_searches);
                let model = answer.model.unwrap_or_else(|| web_search.model().to_owned());
                let settlement = Settlement::Answered { usage: answer.usage, text: &answer.text, model: Some(&model) };
                self.settle(&meter, (&sending, reserved), &settlement).await;
                let tokens = answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens));
                Ok(TextAnswer { text: answer.text, model, searches: answer.searches, citations: answer.citations, tokens })
            }
            Err(error) => {
                self.settle(&meter, (&sending, reserved), &Settlement::Failed { error: &error, received: &error.received }).await;
                Err(failure(&error))
            }
        }
    }

    async fn request_vectors(&self, texts: Vec<String>, deadline: Deadline) -> Result<Vec<Vec<f32>>, Failure> {
        let gate = &self.accounts.gate;
        let Some(embeddings) = gate.embeddings() else { return Err(NoModels::not_configured()) };
        let meter = self.meter(embeddings.name(), embeddings.model(), "embedding", texts.iter().map(String::len).sum());
        let Some(admission) = in_time(deadline, gate.admit_embedding()).await else { return Err(late().nothing_happened()) };
        let sending = Sending::starting(&self.accounts.clock);
        match admission.embed(embeddings, &texts, deadline).await {
            Ok(embedded) => {
                sending.identify(embedded.request_id.as_deref());
                let usage =
                    embedded.tokens.map(|tokens| TokenUsage { input_tokens: tokens, total_tokens: tokens, ..TokenUsage::default() });
                self.settle(&meter, (&sending, None), &Settlement::Answered { usage, text: "", model: None }).await;
                Ok(embedded.vectors)
            }
            Err(error) => {
                self.settle(&meter, (&sending, None), &Settlement::Failed { error: &error, received: "" }).await;
                Err(failure(&error))
            }
        }
    }
}

impl Models for ModelAccess {
    fn answer(&self, request: TextRequest, deadline: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>> {
        Box::pin(self.request_text(request, deadline))
    }

    fn search_web(&self, request: TextRequest, deadline: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>> {
        Box::pin(self.request_web_search(request, deadline))
    }

    fn embed(&self, texts: Vec<String>, deadline: Deadline) -> BoxFuture<'_, Result<Vec<Vec<f32>>, Failure>> {
        Box::pin(self.request_vectors(texts, deadline))
    }
}

fn bytes(request: &TextRequest) -> usize {
    request.system.len() + request.messages.iter().map(String::len).sum::<usize>()
}

fn model_request(request: TextRequest) -> ModelRequest {
    let TextRequest { system, messages, temperature, locale } = request;
    ModelRequest {
        system: system.into(),
        messages: Arc::new(messages.into_iter().map(Message::user).collect()),
        tool_choice: ToolChoice::None,
        locale,
        temperature,
        ..ModelRequest::default()
    }
}

/// An answer's text, or the refusal in its place; and the usage that the provider reported.
fn text_answer(answer: Answer, default_model: &str) -> (TextAnswer, Option<TokenUsage>) {
    let text = if answer.text.is_empty() { answer.refusal.unwrap_or_default() } else { answer.text };
    let model = answer.model.unwrap_or_else(|| default_model.to_owned());
    let tokens = answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens));
    (TextAnswer { text, model, tokens, ..TextAnswer::default() }, answer.usage)
}

fn late() -> Failure {
    Failure::new(ToolErrorType::Timeout, ErrorCode::ToolTimeout, "The model did not answer in time.")
}

/// What the user reads. The provider's own message stays in the cause, for the operator.
fn failure(error: &ModelError) -> Failure {
    let (kind, status) = match error.fault {
        ModelFault::Refused { status: 429 } => (ToolErrorType::RateLimit, Some(429)),
        ModelFault::Refused { status } if status < 500 && status != 408 => (ToolErrorType::Fatal, Some(status)),
        ModelFault::Refused { status } => (ToolErrorType::Upstream, Some(status)),
        ModelFault::FirstByte | ModelFault::Idle => (ToolErrorType::Timeout, None),
        ModelFault::Connect | ModelFault::Incomplete | ModelFault::Protocol => (ToolErrorType::Upstream, None),
    };
    let failure = Failure::new(kind, "model_unavailable", "The model cannot be asked right now.");
    Failure { upstream_status: status, ..failure.because(error.to_string()).retry_after(error.retry_after) }
}
