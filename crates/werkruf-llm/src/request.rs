//! A request to a provider.

use std::sync::Arc;

use jiff::civil::Date;
use serde_json::{Map, Value};
use werkruf_contract::TextSet;

/// One message of the history, independent of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// An instruction inside the history.
    System { content: String },
    User {
        content: String,
        /// Images and files, as content parts of Chat Completions. If set, `content` is only the text in them.
        parts: Vec<Value>,
    },
    Assistant {
        content: String,
        calls: Vec<HistoryCall>,
        /// `Answer::carry` of this answer, if stored.
        carry: Option<Value>,
    },
    Tool {
        call_id: String,
        name: String,
        content: String,
        /// As for a user message.
        parts: Vec<Value>,
    },
}

impl Message {
    /// A user message with text only.
    pub fn user(content: impl Into<String>) -> Self {
        Self::User { content: content.into(), parts: Vec::new() }
    }

    /// A result with text only.
    pub fn result(call_id: impl Into<String>, name: impl Into<String>, content: impl Into<String>) -> Self {
        Self::Tool { call_id: call_id.into(), name: name.into(), content: content.into(), parts: Vec::new() }
    }
}

/// An earlier call of the assistant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryCall {
    pub id: String,
    pub name: String,
    /// The exact string to send.
    pub arguments: String,
}

/// The answer to a provider that asked for permission to run a call. It leaves with one request and is not part of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// The id of the call in the history.
    pub call_id: String,
    pub approve: bool,
    pub reason: Option<String>,
}

/// A tool definition as sent to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    /// The strict form of the schema if there is one, else the plain schema.
    pub parameters: Value,
    pub strict: bool,
    /// The texts of the tool's module, for the offline planner.
    pub texts: Option<&'static TextSet>,
}

/// Whether the model may call tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// This tool and no other.
    Named(String),
    /// No tools are offered: the model must answer with text.
    None,
}

/// A model request.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// `None` uses the provider's default.
    pub model: Option<String>,
    /// Shared by all requests of a turn.
    pub system: Arc<str>,
    /// Shared, so that a retry costs no copy.
    pub messages: Arc<Vec<Message>>,
    pub tools: Arc<Vec<ToolDefinition>>,
    pub tool_choice: ToolChoice,
    /// Whether the model may request several calls in one answer; `None` leaves it to the provider.
    pub parallel_tool_calls: Option<bool>,
    /// The user's language and date, for the offline planner.
    pub locale: String,
    pub today: Date,
    pub temperature: Option<f64>,
    pub max_output_tokens: Option<u32>,
    /// The client's own limit. It can only lower the operator's limit.
    pub client_max_tokens: Option<u32>,
    /// Further options, under their Chat Completions names. A provider sends those it supports.
    pub options: Arc<Map<String, Value>>,
    /// Answers to requests for permission among the messages. The provider runs what they approve.
    pub approvals: Arc<Vec<ApprovalAnswer>>,
}

impl ModelRequest {
    /// The limit to send: the operator's, or the client's if lower.
    pub(crate) fn token_limit(&self, default: u32) -> u32 {
        let allowed = self.max_output_tokens.unwrap_or(default);
        self.client_max_tokens.map_or(allowed, |fewer| fewer.min(allowed))
    }
}
