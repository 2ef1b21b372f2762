//! The metadata of every call: correlation ids, budgets, scope. The model chooses none of it.

use std::num::NonZeroU64;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The extra field of a context with a span, written as the header of this name. The stored context of a turn has the caller's span; the context of
/// a running call has the call's own, where the turn is traced.
pub const TRACEPARENT: &str = "traceparent";

/// Runtime metadata of one tool call (seed 002).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = example(), extend("oneOf" = one_run()))]
pub struct ToolContext {
    /// The tenant; every read and write is restricted to it.
    pub tenant_id: Uuid,
    /// Correlates log lines, calls and spans.
    pub trace_id: String,
    /// Unique per execution.
    pub invocation_id: Uuid,
    /// Time-zone aware; kept in UTC.
    pub now_iso: Timestamp,
    /// Run of a graph or chat turn; exclusive with `ingestion_run_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Run of an upload; exclusive with `run_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingestion_run_id: Option<String>,
    /// Graph or business process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// Document scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection_id: Option<String>,
    /// Document, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_id: Option<String>,
    /// Version of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_version_id: Option<String>,
    /// Business context such as a ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case_id: Option<String>,
    /// The same for all attempts of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Whole time budget; more than zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts_ms: Option<NonZeroU64>,
    /// Model budget in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_tokens: Option<i64>,
    /// Locale tag such as `de-DE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// Name of a guard-rail profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_mode: Option<String>,
    /// Further profiles that apply, pinned by the key or the assistant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub safety_pinned: Vec<String>,
    /// The collections that the assistant searches; empty: not limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<String>,
    /// Arguments that the assistant sets where neither the model nor the person says anything, by tool.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub defaults: Map<String, Value>,
    /// Credentials passed on. Never serialised.
    #[serde(default, skip_serializing)]
    pub auth: Option<Auth>,
    /// Fields that the contract does not list, such as `request_id`.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Credentials that are passed on to the tool. They are never stored or returned.
// So `Debug` does not show them and nothing serialises them.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Auth(Map<String, Value>);

impl Auth {
    /// The credentials, for the tool that passes them on.
    pub const fn reveal(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth([redacted])")
    }
}

/// Violations of rules between fields, which the types alone cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    #[error("not a tool context: {0}")]
    Shape(String),
    #[error("run_id and ingestion_run_id are both set; set exactly one")]
    BothRuns,
    #[error("neither run_id nor ingestion_run_id is set; set exactly one")]
    NoRun,
}

impl ToolContext {
    /// A context with the required fields; the others are empty.
    pub fn new(tenant_id: Uuid, trace_id: String, invocation_id: Uuid, now: Timestamp, run_id: String) -> Self {
        Self {
            tenant_id,
            trace_id,
            invocation_id,
            now_iso: now,
            run_id: Some(run_id),
            ingestion_run_id: None,
            workflow_id: None,
            collection_id: None,
            document_id: None,
            document_version_id: None,
            case_id: None,
            idempotency_key: None,
            timeouts_ms: None,
            budget_tokens: None,
            locale: None,
            safety_mode: None,
            safety_pinned: Vec::new(),
            collections: Vec::new(),
            defaults: Map::new(),
            auth: None,
            extra: Map::new(),
        }
    }

    /// Reads a context and checks the rules between its fields.
    pub fn from_json(value: Value) -> Result<Self, ContextError> {
        let context: Self = serde_json::from_value(value).map_err(|error| ContextError::Shape(error.to_string()))?;
        context.checked()
    }

    /// Adds a guard-rail profile. Those that are named already stay.
    pub fn pin_safety(&mut self, profile: &str) {
        if self.safety_mode.is_none() {
            self.safety_mode = Some(profile.to_owned());
        } else if !self.safety_profiles().any(|named| named == profile) {
            self.safety_pinned.push(profile.to_owned());
        }
    }

    /// Every guard-rail profile that applies.
    pub fn safety_profiles(&self) -> impl Iterator<Item = &str> {
        self.safety_mode.iter().chain(&self.safety_pinned).map(String::as_str)
    }

    /// Checks that exactly one of the run ids is set.
    pub fn checked(self) -> Result<Self, ContextError> {
        match (&self.run_id, &self.ingestion_run_id) {
            (Some(_), Some(_)) => Err(ContextError::BothRuns),
            (None, None) => Err(ContextError::NoRun),
            (Some(_), None) | (None, Some(_)) => Ok(self),
        }
    }
}

fn one_run() -> Value {
    serde_json::json!([
        {"properties": {"run_id": {"type": "string"}, "ingestion_run_id": {"type": "null"}}, "required": ["run_id"]},
        {"properties": {"ingestion_run_id": {"type": "string"}, "run_id": {"type": "null"}}, "required": ["ingestion_run_id"]}
    ])
}

fn example() -> Value {
    serde_json::json!({
        "tenant_id": "5aa31da6-9278-4da0-9f1a-61b8d3edc5cc",
        "request_id": "8607a8d9-0f3f-43df-bf86-37e845e1574c",
        "trace_id": "trace-123",
        "run_id": "graph_run_cfe213",
        "workflow_id": "retrieval_augmented_generation",
        "invocation_id": "0f4e6712-6d04-4514-b6cb-943b0667d45c",
        "now_iso": "2024-05-03T12:34:56.123456+00:00",
        "collection_id": "hr-onboarding",
        "case_id": "crm-7421",
        "locale": "de-DE",
        "timeouts_ms": 120_000,
        "budget_tokens": 4096
    })
}
