//! The envelope of a call that went well, and the union of both.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ToolError;

/// Measurements and provenance of a result (seed 002).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = serde_json::json!({"took_ms": 42, "token_usage": {"prompt": 12, "completion": 20}}))]
pub struct ToolResultMeta {
    /// Duration of the call.
    pub took_ms: u64,
    /// How much came from which source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_counts: Option<BTreeMap<String, u64>>,
    /// Which way the call took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Map<String, Value>>,
    /// Whether the result was reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit: Option<bool>,
    /// Tokens the tool itself used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_usage: Option<BTreeMap<String, i64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum OkLiteral {
    #[serde(rename = "ok")]
    Ok,
}

/// The envelope of a call that went well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = result_example())]
pub struct ToolResult {
    pub(crate) status: OkLiteral,
    /// Echo of the input.
    pub input: Value,
    /// What the tool found or did.
    pub data: Value,
    /// Measurements and provenance.
    pub meta: ToolResultMeta,
}

impl ToolResult {
    /// The envelope for this result.
    pub fn new(input: Value, data: Value, meta: ToolResultMeta) -> Self {
        Self { status: OkLiteral::Ok, input, data, meta }
    }
}

/// Either envelope, told apart by `status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(example = result_example())]
pub enum ToolOutput {
    Ok(ToolResult),
    Error(ToolError),
}

fn result_example() -> Value {
    serde_json::json!({
        "status": "ok",
        "input": {"query": "hello"},
        "data": {"answer": "Hi there!"},
        "meta": {"took_ms": 42, "token_usage": {"prompt": 12, "completion": 20}}
    })
}
