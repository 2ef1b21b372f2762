//! What a client of the OpenAI API sends beside its message: its own history, tools and model options. Stored with the turn as one
//! JSON value, so that recovery sends the model the same request.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use werkruf_contract::Uuid;

/// The request of an OpenAI client, without the message itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientRequest {
    /// The client's own system text. It follows the assistant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Earlier messages in OpenAI's chat format, where no stored conversation holds them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Value>,
    /// Tools the client runs itself. One with a server tool's name wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// Means the client's tools where it has any, until one is called; else it counts in the first step only.
    pub tool_choice: ClientChoice,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// The most calls of the server's tools in the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Other model options, under their Chat Completions names (`top_p`, `stop`, `response_format`, …).
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// The server's tools that may be used; `None` for all the assistant has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_tools: Option<Vec<String>>,
    /// Digest of everything the client has sent and received up to and with this request; see
    /// [`digest_after_answer`](crate::digest_after_answer).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub transcript_digest: String,
    /// Set where the request brings results of waiting calls, so that the same request is recognized when it comes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<Continuation>,
    /// What the endpoint wants to find again with the turn.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub endpoint: Value,
}

impl ClientRequest {
    /// Reads the stored value. One that cannot be read is left out and logged, because the model then gets less than the client sent.
    pub(crate) fn stored(text: Option<&str>, turn_id: Uuid) -> Option<Self> {
        let read = |text| {
            serde_json::from_str(text)
                .inspect_err(|error| tracing::warn!(%turn_id, %error, "the stored request of a client cannot be read"))
        };
        text.and_then(|text| read(text).ok())
    }
}

/// Digests of a request with results of the client's calls. The store reads them by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    /// Of everything that shapes the answer.
    pub request: String,
    /// Of the results alone.
    pub results: String,
}

/// A tool of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientTool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Sent to the model as it came.
    pub parameters: Value,
    #[serde(default)]
    pub strict: bool,
    /// The client's tool takes a free text, which the model sends in the field `input`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub custom: bool,
}

/// Whether the model must call something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientChoice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

/// The result of a call that a client ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientResult {
    pub call_id: String,
    pub content: String,
    /// Content parts of Chat Completions, where the result is more than text.
    pub parts: Vec<Value>,
}
