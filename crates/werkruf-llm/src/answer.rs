//! What a provider answers.

use serde_json::Value;
use werkruf_contract::{CallKind, FinishReason};

/// A piece of an answer as it arrives.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Text to show.
    Text(String),
    /// The provider began to run something itself.
    ItemStarted(Box<ProviderItem>),
    /// It is done with it, well or not; the same item is in the answer.
    ItemFinished(Box<ProviderItem>),
    /// Everything there was; the stream completed.
    Done(Box<Answer>),
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub text: String,
    pub refusal: Option<String>,
    /// What we are asked to run.
    pub calls: Vec<ToolCall>,
    /// What the provider ran, or offers to run, itself.
    pub items: Vec<ProviderItem>,
    /// Last finish reason or response status, as the wire had it.
    pub finish: Option<String>,
    /// Why it was cut off, where the wire says so beside the status.
    pub cut: Option<String>,
    /// False when the provider did not say that it was done: its calls must not run.
    pub executable: bool,
    pub usage: Option<TokenUsage>,
    pub response_id: Option<String>,
    /// The model that really answered, where the wire says so.
    pub model: Option<String>,
    /// What this provider wants to see again with this answer (reasoning, signatures). Opaque: keep it as it is, and
    /// hand it back in `Message::Assistant`. Another provider or model ignores it.
    pub carry: Option<Value>,
    /// What was wrong but survivable.
    pub errors: Vec<String>,
}

impl Answer {
    /// Why the model stopped, in words both APIs share.
    pub fn finish_reason(&self) -> FinishReason {
        match (self.finish.as_deref(), self.cut.as_deref()) {
            (Some("content_filter"), _) | (Some("incomplete"), Some("content_filter")) => FinishReason::ContentFilter,
            (Some("length" | "max_tokens" | "model_length" | "incomplete"), _) => FinishReason::Length,
            _ => FinishReason::Stop,
        }
    }
}

/// A call the model asked for, with the ids exactly as the wire has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub kind: CallKind,
    pub item_id: Option<String>,
    pub call_id: Option<String>,
    /// The place among the answer's output items; gaps are normal, because texts and thoughts have places too.
    pub output_index: u32,
    pub name: String,
    /// The exact string; never made up from damage.
    pub arguments: String,
    /// As the wire has it, where it has one. It can lag behind: `Answer::executable` decides.
    pub status: Option<String>,
}

/// Something the provider ran itself, with the ids exactly as the wire has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderItem {
    /// The item's type on the wire: `mcp_call`, `web_search_call`, `mcp_approval_request`, …
    pub kind: String,
    /// The response it belongs to.
    pub response_id: Option<String>,
    pub item_id: Option<String>,
    pub call_id: Option<String>,
    pub output_index: u32,
    pub name: Option<String>,
    /// The exact string, or the JSON of what stands in its place (a search's `action`).
    pub arguments: Option<String>,
    pub output: Option<Value>,
    /// As the wire has it: `completed`, `failed`, `searching`, …
    pub status: Option<String>,
    pub error: Option<Value>,
}

impl ProviderItem {
    /// What a registry calls it; `None` for what is no call (lists of tools, questions for approval).
    pub fn call_kind(&self) -> Option<CallKind> {
        match self.kind.as_str() {
            "mcp_call" => Some(CallKind::Mcp),
            "web_search_call" => Some(CallKind::WebSearch),
            "mcp_approval_request" | "mcp_list_tools" => None,
            other if other.ends_with("_call") => Some(CallKind::Custom),
            _ => None,
        }
    }

    /// Whether it did what it was asked. A status can lag behind, so only an error or a failure says no.
    pub fn succeeded(&self) -> bool {
        self.error.is_none() && !matches!(self.status.as_deref(), Some("failed" | "incomplete"))
    }
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
