//! What a provider is asked.

use std::sync::Arc;

use jiff::civil::Date;
use serde_json::{Map, Value};

/// One message of the history, in the words every provider shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What somebody told the model to heed, at the place where it was said.
    System {
        content: String,
    },
    User {
        content: String,
        /// Pictures and files, as content parts of Chat Completions; with them, `content` is only their text.
        parts: Vec<Value>,
    },
    Assistant {
        content: String,
        calls: Vec<HistoryCall>,
        /// `Answer::carry` of this very answer, where it was kept.
        carry: Option<Value>,
    },
    Tool {
        call_id: String,
        name: String,
        content: String,
    },
}

impl Message {
    /// What a person said in words alone.
    pub fn user(content: impl Into<String>) -> Self {
        Self::User { content: content.into(), parts: Vec::new() }
    }
}

/// A call the assistant made earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryCall {
    pub id: String,
    pub name: String,
    /// The exact string for the wire.
    pub arguments: String,
}

/// A tool as offered.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    /// The strict form where there is one, else the plain schema.
    pub parameters: Value,
    pub strict: bool,
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
    /// The last word: no tools are offered.
    None,
}

/// One request.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// `None` takes the provider's default.
    pub model: Option<String>,
    /// Shared by all requests of a turn.
    pub system: Arc<str>,
    /// Shared, so that a retry costs no copy.
    pub messages: Arc<Vec<Message>>,
    pub tools: Arc<Vec<ToolDefinition>>,
    pub tool_choice: ToolChoice,
    /// Several calls in one answer; `None` leaves it to the provider.
    pub parallel_tool_calls: Option<bool>,
    /// For a planner that is no language model: the person's language and date.
    pub locale: String,
    pub today: Date,
    pub temperature: Option<f64>,
    pub max_output_tokens: Option<u32>,
    /// A client's own limit, which only makes the answer shorter: what an operator allows is his to say.
    pub client_max_tokens: Option<u32>,
    /// Other wishes, under their Chat Completions names; a provider takes those it knows.
    pub options: Arc<Map<String, Value>>,
}

impl ModelRequest {
    /// The limit to send: the operator's, or less where the client wants less.
    pub(crate) fn most_tokens(&self, default: u32) -> u32 {
        let allowed = self.max_output_tokens.unwrap_or(default);
        self.client_max_tokens.map_or(allowed, |fewer| fewer.min(allowed))
    }
}
