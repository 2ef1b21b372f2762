//! Runs turns: accepts messages, sends model requests, runs tool calls, records everything.
//!
//! An API authenticates and parses, then enters here: [`Runtime::chat`] for a message, [`Runtime::invoke`] for a direct call,
//! [`Runtime::retry_call`] for a call that failed. All of them use the one call pipeline in `call`.
//!
//! Modules depend downwards only:
//! `runtime → {alerts, approvals, outbox} → recovery → turn → engine → call → {model, journal} → stream → lease`.
//!
//! Invariants: a call's row is durable before its first byte leaves. An event is durable before a client receives it (tokens and debug entries
//! aside). The history is valid for a provider after every commit. No task runs without an owner.

mod alerts;
mod answer_format;
mod approvals;
mod arrivals;
mod assistant;
mod budgets;
mod call;
mod channel;
mod channels;
mod client_request;
mod conditions;
mod engine;
mod journal;
mod lease;
mod limits;
mod metrics;
mod model;
mod outbox;
mod progress;
mod rate_limit;
mod recovery;
mod redaction;
mod registry;
mod request;
mod runtime;
mod safety;
mod setup;
mod stored;
mod stream;
mod taint;
mod timer;
mod trace;
mod transcript_digest;
mod turn;
mod turn_limits;

pub use alerts::AlertSources;
pub use answer_format::AnswerFormat;
pub use approvals::Decider;
pub use assistant::{Assistant, Assistants, Compaction};
pub use budgets::{BudgetBook, BudgetRefusal, period_end};
pub use call::{NamedData, Repair};
pub use channel::{Channel, DirectCall, Inbound, OutboxBody, OverLimit, ReplyTo, SendResult};
pub use channels::{Channels, Notification, WEBHOOK, Webhook};
pub use client_request::{ClientChoice, ClientRequest, ClientResult, ClientTool, Continuation};
pub use conditions::Conditions;
pub use engine::Services;
pub use limits::Limits;
pub use metrics::Metrics;
pub use model::{ModelAccounts, ModelGate, ModelProviders};
pub use progress::LoopProgress;
pub use rate_limit::{Rate, RateLimiter, RateRoom, RateSubject};
pub use recovery::RecoveryCloser;
pub use redaction::Redaction;
pub use registry::{Entry, LeftOutTool, Registry, RegistryFault};
pub use request::{
    AcceptedTurn, Caller, ChannelMessage, Idempotency, InboundMessage, Invoke, InvokeOutcome, InvokeResult, Pins, Refusal, StartedCall,
};
pub use runtime::{Load, Runtime};
pub use safety::SafetyProfile;
pub use setup::{AlertSettings, Setup};
pub use stored::{complete_event, output_of};
pub use stream::{ClientLeave, Joined, LiveEvent, PartialAnswer, SubscribeOptions, Subscription};
pub use taint::TaintPolicy;
pub use trace::{Attribute, CallerSpan, Sampler, Span, SpanId, SpanKind, SpanSink, TraceId, Tracer};
pub use transcript_digest::{digest_after_answer, digest_after_message, digest_after_result};
pub use turn::{SERVER_METADATA, SUMMARY_PROMPT, SUMMARY_QUESTION};
