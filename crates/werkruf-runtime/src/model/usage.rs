//! What a request used: one usage row per request that was sent, also for requests that failed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use werkruf_contract::{Clock, Uuid};
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{Answer, ModelError, ModelFault, TokenUsage};
use werkruf_store::NewUsage;

use crate::metrics::{Metrics, ModelOutcome};

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
    pub(crate) fn complete(&self, answer: &Answer) {
        self.identify(answer.response_id.as_deref());
        self.searched(answer.searches());
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

/// Everything that is known of a request before it is sent.
pub(crate) struct Meter<'a> {
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    pub(crate) operation: &'static str,
    pub(crate) sent_bytes: usize,
    /// The tool call that made the request, where one did.
    pub(crate) call_id: Option<Uuid>,
    pub(crate) tool_name: Option<&'a str>,
    pub(crate) key_id: Option<Uuid>,
    pub(crate) prices: &'a PriceTable,
    pub(crate) clock: &'a Clock,
    pub(crate) metrics: &'a Metrics,
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
    /// The usage row of the request, which has ended; `None` where nothing was sent.
    pub(crate) fn settle(&self, sending: &Sending, settlement: &Settlement<'_>) -> Option<NewUsage> {
        let row = self.usage(sending, settlement);
        self.metrics.model_request_ended(self.operation, settlement.outcome(), row.as_ref());
        row
    }

    /// The estimated row of a request that is about to leave.
    pub(crate) fn reservation(&self, sending: &Sending) -> Option<NewUsage> {
        self.usage(sending, &Settlement::Aborted { received: "" })
    }

    fn usage(&self, sending: &Sending, settlement: &Settlement<'_>) -> Option<NewUsage> {
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
        let tokens = |bytes: usize| i64::try_from(estimated_tokens(bytes)).unwrap_or(i64::MAX);
        let (input_tokens, output_tokens) = (tokens(self.sent_bytes), tokens(received.len()));
        let total_tokens = input_tokens.saturating_add(output_tokens);
        self.row((TokenUsage { input_tokens, output_tokens, total_tokens, ..TokenUsage::default() }, searches), true, model)
    }

    fn row(&self, (tokens, searches): (TokenUsage, u32), estimated: bool, model: Option<&str>) -> NewUsage {
        let model = model.unwrap_or(self.model);
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
            cost_nano_usd: self.prices.cost_with_searches(model, tokens, searches),
            ..NewUsage::new(self.clock.new_id(), self.provider, model, self.operation)
        }
    }
}
