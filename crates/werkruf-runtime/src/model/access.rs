//! Model access for tools and for work outside a turn: each request passes the gate and has a usage row.
//!
//! Invariants: the usage row of a request for a text is durable, with estimated tokens, before the request leaves, so that a crash loses none. In
//! a turn the final row is staged in the turn's journal; outside a turn it is written at once. Where a budget counts a request, its worst case is
//! reserved before it leaves, in the transaction that writes the estimated row. A request for vectors that no budget counts has no such row, because a
//! search must not wait for a commit: a crash before the call's outcome is committed loses that row.

use std::sync::Arc;

use futures_util::StreamExt;
use jiff::SignedDuration;
use werkruf_contract::{BoxFuture, Clock, Deadline, Failure, ModelSource, Models, NoModels, TextAnswer, TextRequest, Uuid};
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{Delta, ModelError, ModelFault, RequestSize, WebSearchRequest, in_time};
use werkruf_store::{BudgetCounter, NewReservation, NewUsage, UsageOwner, UsageRows};

use super::failures::{RequestError, failure, late, refused, unchecked};
use super::gate::ModelGate;
use super::text_request::{bytes, model_request, text_answer};
use super::usage::{Meter, Sending, Sent, Settlement};
use super::worst_case::{MAX_SEARCHES, worst_case};
use crate::budgets::{Applicable, BudgetBook, Spender, TurnTokens, WorstCase};
use crate::metrics::Metrics;
use crate::timer;
use crate::trace::TurnTrace;

/// A reservation outlives its request by this much, for the row that settles it.
const SETTLING: SignedDuration = SignedDuration::from_secs(60);

/// Takes the usage rows of requests that belong to a turn.
type StageUsage = Arc<dyn Fn(NewUsage) + Send + Sync>;

/// What all accesses of a process share.
#[derive(Clone)]
pub struct ModelAccounts {
    pub gate: Arc<ModelGate>,
    pub usage: Arc<dyn UsageRows>,
    pub budgets: Arc<BudgetBook>,
    /// Of requests outside a turn; a turn has its own.
    pub prices: Arc<PriceTable>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
}

impl ModelAccounts {
    /// The counters that a request counts towards. A request counts in the period in which it was admitted.
    pub(crate) fn counters(&self, spender: &Spender, reservation: Option<&NewReservation>) -> Vec<BudgetCounter> {
        let Some(applicable) = self.budgets.applicable(spender) else { return Vec::new() };
        let mut counters = applicable.counters(self.clock.now());
        let reserved: Vec<&BudgetCounter> = reservation.iter().flat_map(|own| &own.claims).map(|claim| &claim.counter).collect();
        for counter in &mut counters {
            if let Some(own) = reserved.iter().find(|own| own.budget_id == counter.budget_id && own.subject == counter.subject) {
                counter.period_start = own.period_start;
            }
        }
        counters
    }
}

/// The tool call that makes requests.
#[derive(Clone)]
pub(crate) struct ToolCall {
    pub(crate) id: Uuid,
    pub(crate) tool: String,
    /// Adds a usage row to the turn's journal.
    pub(crate) stage: StageUsage,
    /// Tells the journal that something is reserved.
    pub(crate) reserved: Arc<dyn Fn() + Send + Sync>,
    pub(crate) trace: TurnTrace,
}

/// Access to models in the name of one user.
#[derive(Clone)]
pub(crate) struct ModelAccess {
    pub(super) accounts: ModelAccounts,
    owner: UsageOwner,
    /// The tool call that makes the requests, and its journal.
    call: Option<ToolCall>,
    /// What requests for texts are called in their usage rows.
    operation: &'static str,
    spender: Spender,
    /// The tokens that the turn may use.
    tokens: Arc<TurnTokens>,
}

/// A request that is about to leave.
pub(super) struct Reserved {
    pub(super) sending: Sending,
    /// Its estimated row.
    row_id: Option<Uuid>,
    reservation: Option<NewReservation>,
    /// What it holds of the turn's tokens.
    tokens: i64,
    /// The longest answer that they leave room for.
    max_output: Option<u32>,
}

impl ModelSource for ModelAccounts {
    fn models_for(&self, tenant_id: Uuid, user_id: &str) -> Arc<dyn Models> {
        let spender = Spender { tenant_id, user_id: user_id.to_owned(), ..Spender::default() };
        Arc::new(ModelAccess::outside_turns(self.clone(), spender, "ask_gpt"))
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
    pub(crate) const fn for_call(
        accounts: ModelAccounts,
        owner: UsageOwner,
        call: ToolCall,
        spender: Spender,
        tokens: Arc<TurnTokens>,
    ) -> Self {
        Self { accounts, owner, call: Some(call), operation: "ask_gpt", spender, tokens }
    }

    /// Access for work that belongs to no turn.
    pub(crate) fn outside_turns(accounts: ModelAccounts, spender: Spender, operation: &'static str) -> Self {
        let owner = UsageOwner { tenant_id: spender.tenant_id, user_id: spender.user_id.clone(), ..UsageOwner::default() };
        Self { accounts, owner, call: None, operation, spender, tokens: Arc::default() }
    }

    pub(super) fn meter<'a>(&'a self, provider: &'a str, model: &'a str, operation: &'static str, sent_bytes: usize) -> Meter<'a> {
        Meter {
            provider,
            model,
            operation,
            sent: Sent::Bytes(sent_bytes),
            call_id: self.call.as_ref().map(|call| call.id),
            tool_name: self.call.as_ref().map(|call| call.tool.as_str()),
            key_id: self.spender.key_id,
            prices: &self.accounts.prices,
            clock: &self.accounts.clock,
            metrics: &self.accounts.metrics,
            conditions: self.accounts.gate.conditions(),
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
        Meter { input, ..self.meter(provider, model, self.operation, bytes(request)) }
    }

    /// Writes a row by itself. A failed write is logged; it must not cost the answer.
    async fn put(&self, row: NewUsage) {
        if let Err(error) = self.accounts.usage.put_usage(self.owner.clone(), row, self.accounts.clock.now()).await {
            let turn_id = self.owner.turn_id.map(tracing::field::display);
            tracing::error!(turn_id, tenant_id = %self.owner.tenant_id, %error, "the usage row of a model request could not be written");
        }
    }

    /// Makes room for a request that is about to leave, and writes its estimated row where it has one. `size` also says how many web searches
    /// the provider may run.
    pub(super) async fn reserve(
        &self,
        meter: &Meter<'_>,
        size: impl FnOnce() -> (RequestSize, u32),
        estimated: bool,
        deadline: Deadline,
    ) -> Result<Reserved, Failure> {
        let applicable = self.accounts.budgets.applicable(&self.spender);
        let counts_tokens = self.tokens.is_limited() || applicable.as_ref().is_some_and(Applicable::counts_tokens);
        let worst = if counts_tokens {
            let (size, searches) = size();
            worst_case(size, searches, meter.model, meter.prices, self.tokens.room()).await
        } else {
            WorstCase::default()
        };
        self.tokens.reserve(worst.tokens).map_err(|refusal| refused(&refusal))?;
        let sending = Sending::starting(&self.accounts.clock);
        // Where something is reserved, the row is part of that write.
        let row = (estimated || applicable.is_some()).then(|| meter.reservation(&sending)).flatten();
        let mut reserved = Reserved {
            sending,
            row_id: row.as_ref().map(|row| row.id),
            reservation: None,
            tokens: worst.tokens,
            max_output: worst.max_output,
        };
        match (applicable, row) {
            (Some(applicable), row) => match self.reserve_in(&applicable, worst, row, deadline).await {
                Ok(reservation) => reserved.reservation = Some(reservation),
                Err(failure) => {
                    self.tokens.settle(worst.tokens, 0);
                    return Err(failure);
                }
            },
            (None, Some(row)) => self.put(self.charged(row, None)).await,
            (None, None) => {}
        }
        Ok(reserved)
    }

    async fn reserve_in(
        &self,
        applicable: &Applicable,
        worst: WorstCase,
        row: Option<NewUsage>,
        deadline: Deadline,
    ) -> Result<NewReservation, Failure> {
        let (clock, budgets) = (&self.accounts.clock, &self.accounts.budgets);
        let now = clock.now();
        let expires_at = now + SignedDuration::try_from(timer::left(deadline)).unwrap_or_default() + SETTLING;
        let reservation = applicable.reservation(clock.new_id(), worst, now, expires_at).map_err(|refusal| refused(&refusal))?;
        // The reservation ends with the final row.
        let row = row.map(|row| NewUsage { reservation: None, ..self.charged(row, Some(&reservation)) });
        let store = budgets.store().map_err(|error| unchecked(&error))?;
        let over = store.reserve(self.owner.clone(), reservation.clone(), row, now).await.map_err(|error| unchecked(&error))?;
        if let Some(over) = over {
            self.accounts.gate.conditions().budget_refused(self.owner.tenant_id, &over);
            return Err(refused(&applicable.refusal(&over, now)));
        }
        if let Some(call) = &self.call {
            (call.reserved)();
        }
        Ok(reservation)
    }

    /// The row with what budgets need.
    fn charged(&self, mut row: NewUsage, reservation: Option<&NewReservation>) -> NewUsage {
        row.assistant = self.spender.assistant.clone();
        row.counted_in = self.accounts.counters(&self.spender, reservation);
        row.reservation = reservation.map(|reservation| reservation.id);
        row
    }

    /// Replaces the estimated row, or writes a new one. A request that was never sent has no row.
    pub(super) async fn settle(&self, meter: &Meter<'_>, reserved: &Reserved, settlement: &Settlement<'_>) {
        let row = meter.settle(&reserved.sending, settlement);
        self.tokens.settle(reserved.tokens, row.as_ref().map_or(0, |row| row.tokens_total));
        let Some(mut row) = row else { return self.cancel(reserved).await };
        row.id = reserved.row_id.unwrap_or(row.id);
        let row = self.charged(row, reserved.reservation.as_ref());
        match &self.call {
            Some(call) => (call.stage)(row),
            None => self.put(row).await,
        }
    }

    /// Takes everything back: the request was never sent.
    async fn cancel(&self, reserved: &Reserved) {
        let (accounts, tenant_id) = (&self.accounts, self.owner.tenant_id);
        let canceled = match (reserved.row_id, reserved.reservation.as_ref().map(|reservation| reservation.id)) {
            (None, None) => Ok(()),
            (row_id, reservation_id) => accounts.usage.delete_usage(tenant_id, row_id, reservation_id).await,
        };
        if let Err(error) = canceled {
            tracing::error!(%error, "the usage row of a request that was not sent could not be deleted");
        }
    }

    /// A text of the language model.
    pub(crate) async fn request_text(&self, request: TextRequest, deadline: Deadline) -> Result<TextAnswer, RequestError> {
        let gate = &self.accounts.gate;
        let provider = gate.chat_provider();
        if !provider.writes_text() {
            return Err(NoModels::not_configured().into());
        }
        let meter = self.text_meter(provider.name(), provider.default_model(), &request);
        let Some(admission) = in_time(deadline, gate.admit()).await else { return Err(late().nothing_happened().into()) };
        let mut request = model_request(request);
        let reserved = self.reserve(&meter, || (provider.size(&request), 0), true, deadline).await?;
        request.client_max_tokens = reserved.max_output;
        let sending = &reserved.sending;
        let mut received = String::new();
        let receiving = async {
            let mut stream = admission.send(request).await?;
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
                self.settle(&meter, &reserved, &Settlement::Answered { usage, text, model: Some(&answer.0.model) }).await;
                Ok(answer.0)
            }
            Some(Err(error)) => {
                self.settle(&meter, &reserved, &Settlement::Failed { error: &error, received: &received }).await;
                Err(RequestError::of_model(error, meter.provider))
            }
            None => {
                self.settle(&meter, &reserved, &Settlement::Aborted { received: &received }).await;
                Err(late().into())
            }
        }
    }

    async fn request_web_search(&self, request: TextRequest, deadline: Deadline) -> Result<TextAnswer, Failure> {
        let gate = &self.accounts.gate;
        let Some(web_search) = gate.web_search() else { return Err(NoModels::not_configured()) };
        let meter = self.text_meter(web_search.name(), web_search.model(), &request);
        let Some(admission) = in_time(deadline, gate.admit()).await else { return Err(late().nothing_happened()) };
        let country = request.locale.split(['-', '_']).nth(1).filter(|code| code.len() == 2).map(str::to_ascii_uppercase);
        let TextRequest { system, messages, temperature, .. } = request;
        // The fees of a budget in money must have a bound.
        let counts_money = self.accounts.budgets.applicable(&self.spender).is_some_and(|applicable| applicable.counts_money());
        let max_searches = counts_money.then_some(MAX_SEARCHES);
        let mut request = WebSearchRequest { system, messages, temperature, country, max_searches, max_output_tokens: None };
        let reserved = self.reserve(&meter, || (web_search.size(&request), MAX_SEARCHES), true, deadline).await?;
        request.max_output_tokens = reserved.max_output;
        let sending = &reserved.sending;
        match admission.search_web(web_search, &request, deadline).await {
            Ok(answer) => {
                sending.identify(answer.request_id.as_deref());
                sending.searched(answer.charged_searches);
                let model = answer.model.unwrap_or_else(|| web_search.model().to_owned());
                let settlement = Settlement::Answered { usage: answer.usage, text: &answer.text, model: Some(&model) };
                self.settle(&meter, &reserved, &settlement).await;
                let tokens = answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens));
                Ok(TextAnswer { text: answer.text, model, searches: answer.searches, citations: answer.citations, tokens })
            }
            Err(error) => {
                self.settle(&meter, &reserved, &Settlement::Failed { error: &error, received: &error.received }).await;
                Err(failure(&error))
            }
        }
    }
}

impl Models for ModelAccess {
    fn answer(&self, request: TextRequest, deadline: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>> {
        Box::pin(async move { self.request_text(request, deadline).await.map_err(RequestError::into_failure) })
    }

    fn search_web(&self, request: TextRequest, deadline: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>> {
        Box::pin(self.request_web_search(request, deadline))
    }

    fn embed(&self, texts: Vec<String>, deadline: Deadline) -> BoxFuture<'_, Result<Vec<Vec<f32>>, Failure>> {
        Box::pin(async move {
            let embedded = self.request_vectors(&texts, None, deadline).await.map_err(RequestError::into_failure)?;
            Ok(embedded.vectors)
        })
    }
}
