//! What a provider answers.

use werkruf_contract::CallKind;

/// A piece of an answer as it arrives.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Text to show.
    Text(String),
    /// Everything there was; the stream completed.
    Done(Box<Answer>),
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub text: String,
    pub refusal: Option<String>,
    pub calls: Vec<AskedCall>,
    /// Last finish reason, as the wire had it.
    pub finish: Option<String>,
    /// False when the provider did not say that it was done: its calls must not run.
    pub executable: bool,
    pub usage: Option<TokenUsage>,
    pub response_id: Option<String>,
    /// The model that really answered, where the wire says so.
    pub model: Option<String>,
    /// What was wrong but survivable.
    pub errors: Vec<String>,
}

/// A call the model asked for, with the ids exactly as the wire has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedCall {
    pub kind: CallKind,
    pub item_id: Option<String>,
    pub call_id: Option<String>,
    pub output_index: u32,
    pub name: String,
    /// The exact string; never made up from damage.
    pub arguments: String,
}

/// Tokens as the provider reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenUsage {
    pub input_tokens: i64,
    pub cached_tokens: i64,
    pub output_tokens: i64,
    pub reasoning_tokens: i64,
    pub total_tokens: i64,
}
