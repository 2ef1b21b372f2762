//! Converts stored messages from and to other formats: OpenAI chat messages, Responses items, LangChain messages. No I/O.
//!
//! Invariants: a history that was read can be written unchanged in the same format, also after a round trip through another
//! one. Data that has no column is stored in `metadata` under the format's name, and is used only while it still
//! matches the columns. A written call always has a result before the next message that is not a result.

mod calls;
mod content;
mod langchain;
mod openai;
mod pairs;
mod responses;

use serde_json::{Map, Value};

pub use calls::column;

use crate::HistoryCall;

/// A format of another API or library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryFormat {
    /// Messages of Chat Completions.
    Openai,
    /// Items of the Responses API.
    Responses,
    /// The format of `messages_to_dict` and `messages_from_dict` of langchain-core.
    Langchain,
}

impl HistoryFormat {
    /// The format with this name in requests.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "openai" => Some(Self::Openai),
            "responses" => Some(Self::Responses),
            "langchain" => Some(Self::Langchain),
            _ => None,
        }
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    Tool,
    System,
}

impl Role {
    /// The spelling in the `role` column.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::System => "system",
        }
    }

    /// Reads the column.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::User, Self::Assistant, Self::Tool, Self::System].into_iter().find(|role| role.as_str() == text)
    }
}

/// How a call ended, according to its result message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultStatus {
    /// Exists only in our store; other formats have no such status.
    Pending,
    Success,
    Error,
}

impl ResultStatus {
    /// The spelling in the `status` column.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Error => "error",
        }
    }

    /// Reads the column.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Success, Self::Error].into_iter().find(|status| status.as_str() == text)
    }
}

/// A row of `messages`, without its technical columns.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMessage {
    /// The row's id, if any; LangChain messages have a field for it.
    pub id: Option<String>,
    pub role: Role,
    pub content: String,
    /// The calls of an assistant message.
    pub calls: Vec<HistoryCall>,
    /// The call that a result belongs to.
    pub call_id: Option<String>,
    pub tool_name: Option<String>,
    pub status: Option<ResultStatus>,
    pub metadata: Map<String, Value>,
}

impl StoredMessage {
    /// A message with nothing but text.
    pub fn text(role: Role, content: impl Into<String>) -> Self {
        let content = content.into();
        Self { id: None, role, content, calls: Vec::new(), call_id: None, tool_name: None, status: None, metadata: Map::new() }
    }

    /// The `tool_calls` column.
    pub fn tool_calls_column(&self) -> Option<String> {
        (!self.calls.is_empty()).then(|| calls::column(&self.calls))
    }

    /// Whether two messages have the same content and calls, ignoring ids.
    fn has_same_content(&self, other: &Self) -> bool {
        let calls = self.calls.len() == other.calls.len() && self.calls.iter().zip(&other.calls).all(|(one, two)| one.is_same_call(two));
        self.role == other.role && self.content == other.content && calls
    }
}

/// An invalid message of a history, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FormatFault {
    /// A JSON pointer into the list.
    pub path: String,
    pub message: String,
}

impl FormatFault {
    fn at(index: usize, message: impl Into<String>) -> Self {
        Self { path: format!("/{index}"), message: message.into() }
    }
}

/// Reads a history. `new_id` creates an id for a call whose id is missing or already used.
pub fn read(format: HistoryFormat, values: &[Value], new_id: &mut dyn FnMut() -> String) -> Result<Vec<StoredMessage>, FormatFault> {
    match format {
        HistoryFormat::Openai => openai::read(values, new_id),
        HistoryFormat::Responses => responses::read(values, new_id),
        HistoryFormat::Langchain => langchain::read(values, new_id),
    }
}

/// Writes a history.
pub fn write(format: HistoryFormat, messages: &[StoredMessage]) -> Vec<Value> {
    let messages = pairs::with_missing_results(messages);
    match format {
        HistoryFormat::Openai => messages.iter().map(|message| openai::write(message)).collect(),
        HistoryFormat::Responses => messages.iter().flat_map(|message| responses::write(message)).collect(),
        HistoryFormat::Langchain => messages.iter().map(|message| langchain::write(message)).collect(),
    }
}

/// The items of one message in the format of the Responses API, without results that it may lack.
pub fn items(message: &StoredMessage) -> Vec<Value> {
    responses::write(message)
}

/// The text of a field, if not empty.
fn text_at<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
#[path = "history_formats_tests.rs"]
mod tests;
