//! A chat turn in progress.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::civil::Date;
use serde_json::{Map, Value};
use werkruf_contract::{Annotation, ClientCall, ErrorCode, FinishReason, State, Texts, ToolContext, ToolErrorType, TurnError};
use werkruf_llm::{Answer, Message, TokenUsage};
use werkruf_store::StoreError;

use super::history::Origin;
use super::provider_items::ProviderItems;
use crate::assistant::Assistant;
use crate::budgets::BudgetRefusal;
use crate::call::{FinishedCall, TurnScope};
use crate::client_request::ClientRequest;
use crate::engine::Engine;
use crate::registry::Offer;
use crate::taint::{Taint, UntrustedResult};

/// How often a call of an unknown tool may come in one turn, and how often in a row a model may get its calls wrong.
pub(super) const REPEATS: u32 = 3;

/// Why a turn stops before its answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// With the text of the answer that was being received.
    Canceled(String),
    Deadline,
    Failed(TurnError),
    /// A budget has no room for the next model request.
    OverBudget(Box<BudgetRefusal>),
    /// The turn waits for an approval; everything is written.
    AwaitingApproval,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(crate) struct Turn {
    pub(crate) engine: Arc<Engine>,
    pub(crate) scope: Arc<TurnScope>,
    pub(crate) assistant: Assistant,
    pub(crate) system: Arc<str>,
    pub(crate) locale: String,
    pub(crate) today: Date,
    pub(crate) offer: Offer,
    pub(crate) context: ToolContext,
    pub(crate) state: Arc<State>,
    pub(crate) messages: Arc<Vec<Message>>,
    /// The stored position of each message, until the history was fitted into the context window.
    pub(crate) origins: Option<Vec<Origin>>,
    /// How many messages at the start are always sent: the stored notes.
    pub(crate) leading: usize,
    /// The untrusted results in what was sent so far.
    pub(crate) taint: Taint,
    /// Whether older messages were left out.
    pub(crate) trimmed: bool,
    pub(crate) created: bool,
    /// The request of an OpenAI client.
    pub(crate) client: Option<Arc<ClientRequest>>,
    /// Its other model options.
    pub(crate) options: Arc<Map<String, Value>>,
    pub(crate) progress: Progress,
}

/// How far a turn is.
#[derive(Default)]
pub(crate) struct Progress {
    /// The number of the last step.
    pub(crate) step: u32,
    /// Steps among them whose answer broke off.
    pub(crate) abandoned: u32,
    /// Calls that the provider runs itself, of the answer that is being received.
    pub(crate) provider_items: ProviderItems,
    pub(crate) finished: Vec<FinishedCall>,
    /// How many steps requested this very call.
    pub(crate) repeats: HashMap<String, u32>,
    pub(crate) mistakes: u32,
    /// The limit that makes the next answer the last.
    pub(crate) limit: Option<Limit>,
    /// All text of the turn so far, step by step.
    pub(crate) text: String,
}

impl Progress {
    /// Steps that had an answer.
    pub(crate) const fn answered(&self) -> u32 {
        self.step.saturating_sub(self.abandoned)
    }
}

/// A limit that a turn reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Steps,
    Repeats,
    Deadline,
}

impl Limit {
    pub(crate) fn error(self, texts: &Texts) -> TurnError {
        let (kind, code) = match self {
            Self::Steps => (ToolErrorType::Fatal, ErrorCode::StepLimit),
            Self::Repeats => (ToolErrorType::Fatal, ErrorCode::RepeatLimit),
            Self::Deadline => (ToolErrorType::Timeout, ErrorCode::TurnDeadline),
        };
        TurnError::new(kind, code, texts.text(&format!("error-{code}"), &[]))
    }
}

/// What a turn answers in the end.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) text: String,
    /// What the text refers to.
    pub(crate) annotations: Vec<Annotation>,
    /// Calls for the client to run; their assistant message is written already.
    pub(crate) calls: Vec<ClientCall>,
    /// What the provider wants to receive again with the text.
    pub(crate) carry: Option<Value>,
    pub(crate) finish: FinishReason,
    /// The length of the text, where the provider has counted it.
    pub(crate) tokens: Option<i64>,
    /// What the provider read of strangers for this answer.
    pub(crate) untrusted: Vec<UntrustedResult>,
}

impl Reply {
    /// A text that no model wrote.
    pub(super) fn text(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// A model's answer. Its text may be a refusal.
    pub(super) fn answer(answer: Answer, is_refusal: bool, untrusted: Vec<UntrustedResult>) -> Self {
        let finish = if is_refusal { FinishReason::Refusal } else { answer.finish_reason() };
        // A refusal has taken the place of the annotated text.
        let annotations = if is_refusal { Vec::new() } else { answer.annotations };
        let (carry, tokens) = (answer.carry, answer.usage.map(text_tokens));
        Self { text: answer.text, annotations, calls: Vec::new(), carry, finish, tokens, untrusted }
    }
}

/// The tokens that an answer takes in a history: reasoning is not sent again as text.
pub(super) const fn text_tokens(usage: TokenUsage) -> i64 {
    usage.output_tokens.saturating_sub(usage.reasoning_tokens)
}
