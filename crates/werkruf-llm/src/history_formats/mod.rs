//! Stored messages in the shapes others speak: OpenAI chat messages, Responses items, LangChain messages. Both ways. Pure.
//!
//! Invariants: what is read can be written again in the same format as it was, and comes back from a journey through
//! another one. What the columns cannot say is kept in `metadata` under the format's name, and is used only while it still
//! agrees with the columns. Every call that is followed by another message is answered before it.

mod calls;
mod content;
mod langchain;
mod openai;
mod pairs;
mod responses;

use serde_json::{Map, Value};

pub use calls::column;

use crate::HistoryCall;

/// A shape others speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryFormat {
    /// Messages of Chat Completions.
    Openai,
    /// Items of the Responses API.
    Responses,
    /// What `messages_to_dict` of langchain-core gives and `messages_from_dict` takes.
    Langchain,
}

impl HistoryFormat {
    /// By the name it has in requests.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "openai" => Some(Self::Openai),
            "responses" => Some(Self::Responses),
            "langchain" => Some(Self::Langchain),
            _ => None,
        }
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    Tool,
    System,
}

impl Role {
    /// As the `role` column spells it.
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

/// How a call ended, as far as its message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultStatus {
    /// Known to our store only; nobody else has a word for it.
    Pending,
    Success,
    Error,
}

impl ResultStatus {
    /// As the `status` column spells it.
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

/// A row of `messages`, as far as its meaning goes.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMessage {
    /// The row's id, where there is one: LangChain's messages have a place for it.
    pub id: Option<String>,
    pub role: Role,
    pub content: String,
    /// What an assistant asked for.
    pub calls: Vec<HistoryCall>,
    /// Which call a result belongs to.
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

    /// Whether two messages say the same, whatever ids they use.
    fn says_the_same(&self, other: &Self) -> bool {
        let calls = self.calls.len() == other.calls.len() && self.calls.iter().zip(&other.calls).all(|(one, two)| one.asks_the_same(two));
        self.role == other.role && self.content == other.content && calls
    }
}

/// What is wrong with a history, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FormatFault {
    /// A JSON pointer into the list.
    pub path: String,
    pub message: String,
}

impl FormatFault {
    fn at(place: usize, message: impl Into<String>) -> Self {
        Self { path: format!("/{place}"), message: message.into() }
    }
}

/// Reads a history. `fresh` makes an id for a call whose own is missing or used before.
pub fn read(format: HistoryFormat, values: &[Value], fresh: &mut dyn FnMut() -> String) -> Result<Vec<StoredMessage>, FormatFault> {
    match format {
        HistoryFormat::Openai => openai::read(values, fresh),
        HistoryFormat::Responses => responses::read(values, fresh),
        HistoryFormat::Langchain => langchain::read(values, fresh),
    }
}

/// Writes a history.
pub fn write(format: HistoryFormat, messages: &[StoredMessage]) -> Vec<Value> {
    let messages = pairs::answered(messages);
    match format {
        HistoryFormat::Openai => messages.iter().map(|message| openai::write(message)).collect(),
        HistoryFormat::Responses => messages.iter().flat_map(|message| responses::write(message)).collect(),
        HistoryFormat::Langchain => messages.iter().map(|message| langchain::write(message)).collect(),
    }
}

/// The text at a field, where there is some.
fn text_at<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
#[path = "history_formats_tests.rs"]
mod tests;
