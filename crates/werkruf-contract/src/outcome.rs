//! The envelope of a successful call, and the union of the success and the error envelope.

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
    /// Number of results per source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_counts: Option<BTreeMap<String, u64>>,
    /// How the call was routed.
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

/// The envelope of a successful call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = result_example())]
pub struct ToolResult {
    pub(crate) status: OkLiteral,
    /// Echo of the input.
    pub input: Value,
    /// The tool's result.
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

/// Either envelope; `status` distinguishes them.
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
