//! What a request used: one usage row per request that was sent, also for requests that failed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use werkruf_contract::{Clock, Uuid};
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{Answer, ModelError, ModelFault, ModelRequest, Provider, TokenUsage, ToolCall};
use werkruf_store::NewUsage;

use crate::conditions::Conditions;
use crate::metrics::{Metrics, ModelOutcome};
use crate::trace::TurnTrace;

/// Bytes per token where the provider did not count.
const BYTES_PER_TOKEN: usize = 4;

/// Roughly how many tokens a text of this many bytes has.
pub(crate) fn estimated_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}

/// What is learned of a request while it is in progress.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// When it left.
    started_at: OnceLock<Timestamp>,
    /// The id that the provider gave it.
    request_id: OnceLock<String>,
    /// The web searches that the provider has run for it.
    searches: AtomicU32,
    response: OnceLock<Response>,
}

/// What spans show of an answer.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) id: Option<String>,
    pub(super) finish: Option<String>,
    /// Only where spans show content.
    pub(super) calls: Vec<ToolCall>,
}

impl Sending {
    /// A request that leaves now.
    pub(crate) fn starting(clock: &Clock) -> Self {
        let sending = Self::default();
        sending.start(clock);
        sending
    }

    pub(crate) fn start(&self, clock: &Clock) {
        self.started_at.get_or_init(|| clock.now());
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started_at.get().is_some()
    }

    /// What a whole answer says of its request.
    pub(crate) fn complete(&self, answer: &Answer, trace: Option<&TurnTrace>) {
        self.identify(answer.response_id.as_deref());
        self.searched(answer.searches());
        if let Some(trace) = trace.filter(|trace| trace.is_on()) {
            let calls = if trace.captures_content() { answer.calls.clone() } else { Vec::new() };
            let (id, finish) = (answer.response_id.clone(), answer.finish.clone());
            self.response.get_or_init(|| Response { id, finish, calls });
        }
    }

    pub(super) fn started_at(&self) -> Option<Timestamp> {
        self.started_at.get().copied()
    }

    pub(super) fn request_id(&self) -> Option<&str> {
        self.request_id.get().map(String::as_str)
    }

    pub(super) fn response(&self) -> Option<&Response> {
        self.response.get()
    }

    pub(crate) fn searched(&self, searches: u32) {
        self.searches.store(searches, Ordering::Relaxed);
    }

    /// The first id counts: the head of the response comes before its body.
    pub(crate) fn identify(&self, id: Option<&str>) {
        if let Some(id) = id {
            self.request_id.get_or_init(|| id.to_owned());
        }
    }
}

/// What was sent, for an estimate of its tokens where the provider reports none.
#[derive(Clone, Copy)]
pub(crate) enum Sent<'a> {
    /// Texts of this many bytes.
    Bytes(usize),
    /// A prompt that was counted before it left.
    Tokens(i64),
    /// A whole request: the schemas of its tools are read by the model too, and so are its pictures.
    Request(&'a dyn Provider, &'a ModelRequest),
}

impl Sent<'_> {
    fn tokens(self) -> i64 {
        let tokens = match self {
            Self::Bytes(bytes) => estimated_tokens(bytes),
            Self::Tokens(counted) => return counted,
            Self::Request(provider, request) => {
                let size = provider.size(request);
                estimated_tokens(size.text_bytes()).saturating_add(size.attached_tokens())
            }
        };
        i64::try_from(tokens).unwrap_or(i64::MAX)
    }
}

/// Everything that is known of a request before it is sent.
pub(crate) struct Meter<'a> {
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    pub(crate) operation: &'static str,
    pub(crate) sent: Sent<'a>,
    /// The tool call that made the request, where one did.
    pub(crate) call_id: Option<Uuid>,
    pub(crate) tool_name: Option<&'a str>,
    pub(crate) key_id: Option<Uuid>,
    pub(crate) prices: &'a PriceTable,
    pub(crate) clock: &'a Clock,
    pub(crate) metrics: &'a Metrics,
    pub(crate) conditions: &'a Conditions,
    /// Of the turn that the request belongs to.
    pub(crate) trace: Option<&'a TurnTrace>,
    /// What is sent, where spans show content: instructions and messages.
    pub(crate) input: Option<(String, String)>,
}

/// How a request ended.
pub(crate) enum Settlement<'a> {
    /// An answer arrived; tokens and model as the provider reported them.
    Answered {
        usage: Option<TokenUsage>,
        text: &'a str,
        model: Option<&'a str>,
    },
    Failed {
        error: &'a ModelError,
        received: &'a str,
    },
    /// The request was canceled, ran out of time, or was in progress when a process stopped.
    Aborted {
        received: &'a str,
    },
}

impl Settlement<'_> {
    const fn outcome(&self) -> ModelOutcome {
        match self {
            Self::Answered { .. } => ModelOutcome::Answered,
            Self::Aborted { .. } => ModelOutcome::Aborted,
            Self::Failed { error, .. } => match error.fault {
                ModelFault::Connect => ModelOutcome::Unreachable,
                ModelFault::Refused { .. } => ModelOutcome::Refused,
                ModelFault::FirstByte | ModelFault::Idle => ModelOutcome::Timeout,
                ModelFault::Incomplete | ModelFault::Protocol => ModelOutcome::Broken,
            },
        }
    }
}

impl Meter<'_> {
    /// Ends the request: counts it, ends its span, and returns its usage row; `None` where nothing was sent.
    pub(crate) fn settle(&self, sending: &Sending, settlement: &Settlement<'_>) -> Option<NewUsage> {
        self.end_span(sending, settlement);
        let row = self.usage(sending, settlement);
        self.metrics.model_request_ended(self.operation, settlement.outcome(), row.as_ref());
        match settlement {
            Settlement::Answered { .. } => self.conditions.request_ended(self.provider, self.operation, None),
            Settlement::Failed { error, .. } => self.conditions.request_ended(self.provider, self.operation, Some(error)),
            Settlement::Aborted { .. } => {}
        }
        row
    }

    /// The estimated row of a request that is about to leave.
    pub(crate) fn reservation(&self, sending: &Sending) -> Option<NewUsage> {
        self.usage(sending, &Settlement::Aborted { received: "" })
    }

    /// The usage row that a request would have if it ended so.
    pub(crate) fn usage(&self, sending: &Sending, settlement: &Settlement<'_>) -> Option<NewUsage> {
        if let Settlement::Failed { error, .. } = settlement {
            sending.identify(error.request_id.as_deref());
        }
        let row = self.tokens(settlement, sending.searches.load(Ordering::Relaxed))?;
        let started_at = sending.started_at.get().copied();
        Some(NewUsage {
            request_id: sending.request_id.get().cloned(),
            started_at,
            took_ms: started_at.map(|start| self.clock.now().duration_since(start).as_millis().try_into().unwrap_or(0).max(0)),
            ..row
        })
    }

    fn tokens(&self, settlement: &Settlement<'_>, searches: u32) -> Option<NewUsage> {
        match settlement {
            Settlement::Answered { usage: Some(usage), model, .. } => Some(self.row((*usage, searches), false, *model)),
            Settlement::Answered { usage: None, text, model } => Some(self.estimate((text, searches), *model)),
            Settlement::Aborted { received } => Some(self.estimate((received, searches), None)),
            Settlement::Failed { error, received } => match (error.fault, error.usage) {
                (ModelFault::Connect, _) => None,
                // The provider counted although it failed.
                (_, Some(usage)) => Some(self.row((usage, searches), false, None)),
                // Refused before it was read: sent, but it cost nothing.
                (ModelFault::Refused { .. }, None) if received.is_empty() && searches == 0 => {
                    Some(self.row((TokenUsage::default(), 0), false, None))
                }
                (_, None) => Some(self.estimate((received, searches), None)),
            },
        }
    }

    /// A row with estimated tokens, and flagged as such.
    fn estimate(&self, (received, searches): (&str, u32), model: Option<&str>) -> NewUsage {
        let (input_tokens, output_tokens) = (self.sent.tokens(), Sent::Bytes(received.len()).tokens());
        let total_tokens = input_tokens.saturating_add(output_tokens);
        self.row((TokenUsage { input_tokens, output_tokens, total_tokens, ..TokenUsage::default() }, searches), true, model)
    }

    fn row(&self, (tokens, searches): (TokenUsage, u32), estimated: bool, model: Option<&str>) -> NewUsage {
        let model = model.unwrap_or(self.model);
        // An answer may name its model in a way that no price list knows. What was asked for has a price where a budget counts money.
        let cost = |model: &str| self.prices.cost_with_searches(model, tokens, searches);
        NewUsage {
            call_id: self.call_id,
            tool_name: self.tool_name.map(str::to_owned),
            key_id: self.key_id,
            tokens_prompt: tokens.input_tokens.max(0),
            tokens_cached: tokens.cached_tokens.max(0),
            tokens_completion: tokens.output_tokens.max(0),
            tokens_reasoning: tokens.reasoning_tokens.max(0),
            tokens_total: tokens.total_tokens.max(0),
            estimated,
            cost_nano_usd: cost(model).or_else(|| cost(self.model)),
            ..NewUsage::new(self.clock.new_id(), self.provider, model, self.operation)
        }
    }
}
