//! What the runtime counts, for `GET /metrics`. Every counter and histogram with a closed set of labels is registered at construction, so that
//! counting is one atomic addition; only tool calls look their name up.
//!
//! Invariant: no label has a value that a request, a model or a tenant chooses.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use werkruf_contract::{CallStatus, TurnStatus};
use werkruf_store::{NewUsage, SendEnd};

/// From a direct call to a turn at its limit of five minutes.
const TURN_BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// From a commit of SQLite in memory to a database that hardly answers.
const COMMIT_BUCKETS: [f64; 11] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
/// The label of every tool that is not in the configuration: a model may invent any name.
const UNKNOWN_TOOL: &str = "unknown";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    tool: String,
    status: &'static str,
}

/// One label of a closed set.
type OneLabel = [(&'static str, &'static str); 1];
type ModelLabels = [(&'static str, &'static str); 2];

/// How a model request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelOutcome {
    Answered,
    /// The provider refused it.
    Refused,
    /// No connection: nothing was sent.
    Unreachable,
    /// The provider said nothing, or stopped to, for too long.
    Timeout,
    /// The answer broke off, or could not be read.
    Broken,
    /// Canceled, out of time, or lost with a process.
    Aborted,
}

const MODEL_OUTCOMES: [&str; 6] = ["answered", "refused", "unreachable", "timeout", "broken", "aborted"];
/// The operations of usage rows.
const OPERATIONS: [&str; 4] = ["chat", "ask_gpt", "embedding", "tool"];

/// What is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retried {
    Model,
    Tool,
    Commit,
}

/// The counters of one process. The default one is registered nowhere.
#[derive(Debug)]
pub struct Metrics {
    turns: [Counter; 3],
    turn_seconds: Histogram,
    tool_calls: Family<CallLabels, Counter>,
    tool_seconds: Histogram,
    model_requests: [[Counter; MODEL_OUTCOMES.len()]; OPERATIONS.len()],
    model_seconds: Histogram,
    tokens: [Counter; 4],
    cost: Counter<f64>,
    unpriced: Counter,
    retries: [Counter; 3],
    takeovers: Counter,
    commits: [Counter; 2],
    commit_seconds: Histogram,
    sends: [Counter; 4],
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&mut Registry::default())
    }
}

impl Metrics {
    /// Registers everything.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            turns: counters(registry, "werkruf_turns", "Turns that ended", "status", ["completed", "failed", "canceled"]),
            turn_seconds: histogram(
                registry,
                "werkruf_turn_seconds",
                "Seconds from the acceptance of a turn, or its takeover, to its end in this process",
                TURN_BUCKETS,
            ),
            tool_calls: register(registry, "werkruf_tool_calls", "Tool calls that ended", Family::default()),
            tool_seconds: histogram(registry, "werkruf_tool_seconds", "Seconds that a tool call ran, with its retries", TURN_BUCKETS),
            model_requests: model_requests(registry),
            model_seconds: histogram(
                registry,
                "werkruf_model_seconds",
                "Seconds from a model request to the end of its answer, embeddings aside",
                TURN_BUCKETS,
            ),
            tokens: counters(
                registry,
                "werkruf_model_tokens",
                "Tokens of model requests; cached is a part of input, reasoning of output",
                "kind",
                ["input", "cached", "output", "reasoning"],
            ),
            cost: register(
                registry,
                "werkruf_model_cost_usd",
                "Cost of model requests whose price is known, in US dollars",
                Counter::default(),
            ),
            unpriced: register(
                registry,
                "werkruf_model_unpriced",
                "Model requests with tokens whose model has no price in the table",
                Counter::default(),
            ),
            retries: counters(registry, "werkruf_retries", "What was tried again after a failure", "of", ["model", "tool", "commit"]),
            takeovers: register(
                registry,
                "werkruf_takeovers",
                "Turns that this process continued after another process, or an earlier start, had left them",
                Counter::default(),
            ),
            commits: counters(registry, "werkruf_commits", "Commits of turns", "result", ["stored", "failed"]),
            commit_seconds: histogram(
                registry,
                "werkruf_commit_seconds",
                "Seconds that a commit of a turn took, with its retries",
                COMMIT_BUCKETS,
            ),
            sends: counters(
                registry,
                "werkruf_outbox_sends",
                "Attempts to send a row of the outbox, by what became of it",
                "result",
                ["sent", "retry", "unknown", "dead"],
            ),
        }
    }

    /// A turn ended. The span is unknown for a turn that never started.
    pub(crate) fn turn_ended(&self, status: TurnStatus, took: Option<Duration>) {
        let counter = match status {
            TurnStatus::Completed => &self.turns[0],
            TurnStatus::Failed => &self.turns[1],
            TurnStatus::Canceled => &self.turns[2],
            TurnStatus::Accepted | TurnStatus::Planning | TurnStatus::Acting | TurnStatus::Finalizing | TurnStatus::AwaitingApproval => {
                return;
            }
        };
        counter.inc();
        if let Some(took) = took {
            self.turn_seconds.observe(took.as_secs_f64());
        }
    }

    /// A call ended. The name is the configuration's; `None` for a name that it does not have.
    pub(crate) fn call_ended(&self, tool: Option<&str>, status: CallStatus, took_ms: u64) {
        let tool = tool.unwrap_or(UNKNOWN_TOOL).to_owned();
        self.tool_calls.get_or_create(&CallLabels { tool, status: status.as_str() }).inc();
        self.tool_seconds.observe(Duration::from_millis(took_ms).as_secs_f64());
    }

    /// A model request ended; without a row it was never sent.
    pub(crate) fn model_request_ended(&self, operation: &str, outcome: ModelOutcome, row: Option<&NewUsage>) {
        let operation = OPERATIONS.iter().position(|known| *known == operation).unwrap_or(0);
        self.model_requests[operation][outcome as usize].inc();
        let Some(row) = row else { return };
        if let Some(took_ms) = row.took_ms.filter(|_| outcome == ModelOutcome::Answered && row.operation != "embedding") {
            self.model_seconds.observe(Duration::from_millis(u64::try_from(took_ms).unwrap_or(0)).as_secs_f64());
        }
        let counts = [row.tokens_prompt, row.tokens_cached, row.tokens_completion, row.tokens_reasoning];
        for (counter, count) in self.tokens.iter().zip(counts) {
            counter.inc_by(u64::try_from(count).unwrap_or(0));
        }
        match row.cost_nano_usd {
            Some(nano) => drop(self.cost.inc_by(dollars(nano))),
            None if row.tokens_total > 0 => drop(self.unpriced.inc()),
            None => {}
        }
    }

    pub(crate) fn tried_again(&self, what: Retried, times: usize) {
        self.retries[what as usize].inc_by(times as u64);
    }

    pub(crate) fn took_over(&self) {
        self.takeovers.inc();
    }

    pub(crate) fn committed(&self, stored: bool, took: Duration) {
        self.commits[usize::from(!stored)].inc();
        self.commit_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn sent(&self, end: &SendEnd) {
        let place = match end {
            SendEnd::Sent { .. } => 0,
            SendEnd::Retry { .. } => 1,
            SendEnd::Unknown { .. } => 2,
            SendEnd::Dead { .. } => 3,
        };
        self.sends[place].inc();
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rounding far below a cent")]
fn dollars(nano: i64) -> f64 {
    nano.max(0) as f64 / 1e9
}

fn register<M: prometheus_client::registry::Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn histogram<const N: usize>(registry: &mut Registry, name: &str, help: &str, buckets: [f64; N]) -> Histogram {
    register(registry, name, help, Histogram::new(buckets))
}

/// One counter per value of a label. All of them are 0 from the start, so that a rate over the first event is right.
fn counters<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    label: &'static str,
    values: [&'static str; N],
) -> [Counter; N] {
    let family = register(registry, name, help, Family::<OneLabel, Counter>::default());
    values.map(|value| family.get_or_create_owned(&[(label, value)]))
}

fn model_requests(registry: &mut Registry) -> [[Counter; MODEL_OUTCOMES.len()]; OPERATIONS.len()] {
    let family = Family::<ModelLabels, Counter>::default();
    let family = register(registry, "werkruf_model_requests", "Requests to model providers, by what became of them", family);
    OPERATIONS.map(|operation| MODEL_OUTCOMES.map(|outcome| family.get_or_create_owned(&[("operation", operation), ("outcome", outcome)])))
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use werkruf_contract::Uuid;

    use super::*;

    fn scrape(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn closed_labels_start_at_zero_and_a_tool_that_nobody_configured_is_unknown() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let text = scrape(&registry);
        for line in ["werkruf_turns_total{status=\"failed\"} 0", "werkruf_turn_seconds_count 0", "werkruf_takeovers_total 0"] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        metrics.call_ended(Some("get_requests"), CallStatus::Succeeded, 12);
        metrics.call_ended(None, CallStatus::Failed, 1);
        metrics.call_ended(None, CallStatus::Failed, 1);
        metrics.turn_ended(TurnStatus::Completed, Some(Duration::from_millis(20)));
        metrics.turn_ended(TurnStatus::AwaitingApproval, Some(Duration::from_millis(20)));
        let text = scrape(&registry);
        for line in [
            "werkruf_tool_calls_total{tool=\"get_requests\",status=\"succeeded\"} 1",
            "werkruf_tool_calls_total{tool=\"unknown\",status=\"failed\"} 2",
            "werkruf_turns_total{status=\"completed\"} 1",
            "werkruf_turn_seconds_bucket{le=\"0.025\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn a_model_request_counts_tokens_cost_and_what_has_no_price() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let row = NewUsage {
            tokens_prompt: 100,
            tokens_completion: 20,
            tokens_total: 120,
            cost_nano_usd: Some(2_500_000),
            took_ms: Some(700),
            ..NewUsage::new(Uuid::nil(), "openai", "gpt-5", "chat")
        };
        metrics.model_request_ended("chat", ModelOutcome::Answered, Some(&row));
        metrics.model_request_ended("chat", ModelOutcome::Timeout, Some(&NewUsage { cost_nano_usd: None, ..row }));
        metrics.model_request_ended("embedding", ModelOutcome::Unreachable, None);
        let text = scrape(&registry);
        for line in [
            "werkruf_model_requests_total{operation=\"chat\",outcome=\"answered\"} 1",
            "werkruf_model_requests_total{operation=\"chat\",outcome=\"timeout\"} 1",
            "werkruf_model_requests_total{operation=\"embedding\",outcome=\"unreachable\"} 1",
            "werkruf_model_tokens_total{kind=\"input\"} 200",
            "werkruf_model_cost_usd_total 0.0025",
            "werkruf_model_unpriced_total 1",
            "werkruf_model_seconds_count 1",
            "werkruf_model_seconds_sum 0.7",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
