//! What commit A knows of a turn's first model request: the message, the prompt and the tools, but not the history. The first request itself
//! reserves more where it needs more.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Init;
use werkruf_llm::{Message, ModelRequest};
use werkruf_store::{NewReservation, OverBudget, StoreError};

use super::history::History;
use super::prompt::Prompt;
use super::start::history_rows;
use crate::budgets::{Applicable, BudgetRefusal, Spender, TurnTokens, WorstCase};
use crate::channel::OverLimit;
use crate::engine::Engine;
use crate::model::worst_case;
use crate::request::{InboundMessage, Refusal};
use crate::setup::Setup;

/// A reservation of commit A outlives the longest turn by this much.
const LONGER_THAN_A_TURN: SignedDuration = SignedDuration::from_secs(180);

/// What a turn claims at commit A.
#[derive(Default)]
pub(super) struct Admission {
    /// `None` for a turn that asks no model.
    pub(super) budgets_version: Option<i64>,
    pub(super) reservation: Option<NewReservation>,
    applicable: Option<Applicable>,
}

impl Admission {
    /// Why commit A refused.
    pub(super) fn refusal(&self, over: &OverBudget, now: Timestamp) -> Option<BudgetRefusal> {
        self.applicable.as_ref().map(|applicable| applicable.refusal(over, now))
    }
}

/// The claims of a message. A tenant without budgets costs a look into a map.
pub(super) async fn admission(
    engine: &Engine,
    setup: &Setup,
    message: &InboundMessage,
    init: &Init,
) -> Result<Admission, AdmissionRefused> {
    if message.inbound.as_ref().is_some_and(|channel| channel.inbound.needs_no_model()) {
        return Ok(Admission::default());
    }
    let book = &engine.store.models.budgets;
    let (tenant_id, tokens) = (message.caller.principal.tenant_id, message.context.budget_tokens);
    let budgets_version = Some(book.version(tenant_id));
    if tokens.is_none() && !book.has_any(tenant_id) {
        return Ok(Admission { budgets_version, ..Admission::default() });
    }
    let needs_assistant = tokens.is_some() || book.needs_assistant(tenant_id);
    let assistant = if needs_assistant { assistant_of(engine, message, init).await? } else { String::new() };
    let spender = Spender {
        tenant_id,
        user_id: message.caller.principal.user_id.clone(),
        key_id: message.caller.key_id,
        assistant: Some(assistant.clone()),
    };
    let applicable = book.applicable(&spender);
    let counts_tokens = tokens.is_some() || applicable.as_ref().is_some_and(Applicable::counts_tokens);
    let worst = if counts_tokens { first_worst_case(engine, setup, message, &assistant).await } else { WorstCase::default() };
    TurnTokens::new(tokens).reserve(worst.tokens)?;
    let now = engine.store.clock.now();
    let expires_at = now + SignedDuration::try_from(engine.limits.turn()).unwrap_or_default() + LONGER_THAN_A_TURN;
    let reserve = |applicable: &Applicable| applicable.reservation(init.turn_id, worst, now, expires_at);
    let reservation = applicable.as_ref().map(reserve).transpose()?;
    Ok(Admission { budgets_version, reservation, applicable })
}

/// Why a message has no claims.
pub(super) enum AdmissionRefused {
    Budget(BudgetRefusal),
    Store(StoreError),
}

impl From<BudgetRefusal> for AdmissionRefused {
    fn from(refusal: BudgetRefusal) -> Self {
        Self::Budget(refusal)
    }
}

impl From<StoreError> for AdmissionRefused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The assistant of the turn. Only the conversation knows it where the message names none.
async fn assistant_of(engine: &Engine, message: &InboundMessage, init: &Init) -> Result<String, StoreError> {
    let tenant_id = message.caller.principal.tenant_id;
    match &message.assistant {
        Some(named) => Ok(named.clone()),
        None if init.created => Ok("default".to_owned()),
        None => {
            let conversation = engine.store.records.conversation(tenant_id, init.conversation_id).await?;
            Ok(conversation.map(|row| row.assistant).unwrap_or_default())
        }
    }
}

async fn first_worst_case(engine: &Engine, setup: &Setup, message: &InboundMessage, assistant: &str) -> WorstCase {
    let request = first_request(engine, setup, message, assistant, Vec::new());
    let provider = engine.store.models.gate.chat_provider();
    let model = request.model.as_deref().unwrap_or_else(|| provider.default_model());
    worst_case(provider.size(&request), 0, model, &setup.prices, message.context.budget_tokens).await
}

/// How many tokens the first model request for a message would have. Nothing is stored or sent.
pub(crate) async fn input_tokens(engine: &Engine, message: &InboundMessage) -> Result<u64, StoreError> {
    let (setup, tenant_id) = (engine.setup(), message.caller.principal.tenant_id);
    let (mut earlier, mut assistant) = (Vec::new(), message.assistant.clone());
    if let Some(conversation_id) = message.conversation_id {
        earlier = History::of(&history_rows(engine, tenant_id, conversation_id).await?).messages;
        let stored = engine.store.records.conversation(tenant_id, conversation_id).await?;
        assistant = assistant.or_else(|| stored.map(|row| row.assistant));
    }
    let request = first_request(engine, &setup, message, assistant.as_deref().unwrap_or("default"), earlier);
    Ok(engine.store.models.gate.chat_provider().size(&request).prompt_tokens().await)
}

fn first_request(engine: &Engine, setup: &Setup, message: &InboundMessage, assistant: &str, earlier: Vec<Message>) -> ModelRequest {
    let principal = &message.caller.principal;
    let locale = message.context.locale.clone().unwrap_or_else(|| principal.language_tag().to_owned());
    let Prompt { assistant, offer, system, .. } = Prompt::of(engine, setup, message, assistant, &locale);
    let client = message.client.as_deref();
    let history = client.filter(|client| !client.history.is_empty()).and_then(|client| serde_json::to_string(&client.history).ok());
    let own = Message::User { content: message.message.clone(), parts: message.parts.clone() };
    let results = message.results.iter().map(|result| Message::User { content: result.content.clone(), parts: result.parts.clone() });
    ModelRequest {
        model: assistant.model,
        system: system.into(),
        messages: Arc::new(earlier.into_iter().chain(history.map(Message::user)).chain(results).chain([own]).collect()),
        tools: offer.definitions,
        max_output_tokens: assistant.max_output_tokens,
        client_max_tokens: client.and_then(|client| client.max_output_tokens),
        ..ModelRequest::default()
    }
}

/// A channel with addresses cannot refuse a message: its turn is stored and ends at once, and the person reads why.
pub(super) fn store_over_budget(message: &mut InboundMessage, refusal: BudgetRefusal) -> Result<(), Refusal> {
    let Some(channel) = &mut message.inbound else { return Err(Refusal::OverBudget(Box::new(refusal))) };
    let retry_after_ms = refusal.retry_after_ms().unwrap_or_default();
    channel.inbound.over_limit = Some(OverLimit { retry_after_ms, silent: false, code: Some(refusal.code()) });
    Ok(())
}
