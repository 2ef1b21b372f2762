//! The answer of a provider, as a stream of deltas and as a whole.

use serde_json::Value;
use werkruf_contract::{Annotation, CallKind, FinishReason};

/// One update of an answer, in order of arrival.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Text to show to the user.
    Text(String),
    /// The provider started to run an item itself.
    ItemStarted(Box<ProviderItem>),
    /// The provider finished the item, with or without success. The answer contains the same item.
    ItemFinished(Box<ProviderItem>),
    /// The complete answer; the stream ended normally.
    Done(Box<Answer>),
}

/// A complete answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub text: String,
    /// What the text refers to.
    pub annotations: Vec<Annotation>,
    pub refusal: Option<String>,
    /// The calls that the server must run, or of which it must say whether the provider may run them.
    pub calls: Vec<ToolCall>,
    /// The items that the provider ran itself.
    pub items: Vec<ProviderItem>,
    /// The last finish reason or response status, as sent by the provider.
    pub finish: Option<String>,
    /// Why the answer was truncated, if the provider reports a reason besides the status.
    pub cut: Option<String>,
    /// False if the provider did not report a normal end. The calls must not run then.
    pub executable: bool,
    pub usage: Option<TokenUsage>,
    pub response_id: Option<String>,
    /// The model that produced the answer, if the provider reports it.
    pub model: Option<String>,
    /// Opaque data that the provider needs with this answer in later requests (reasoning, signatures). The caller stores it
    /// unchanged and sends it back in `Message::Assistant`. Other providers and models ignore it.
    pub carry: Option<Value>,
    /// Problems that did not prevent the answer.
    pub errors: Vec<String>,
}

impl Answer {
    /// How many web searches the provider ran for this answer.
    pub fn searches(&self) -> u32 {
        u32::try_from(self.items.iter().filter(|item| item.is_search()).count()).unwrap_or(u32::MAX)
    }

    /// Why the model stopped, in terms that both APIs share.
    pub fn finish_reason(&self) -> FinishReason {
        match (self.finish.as_deref(), self.cut.as_deref()) {
            (Some("content_filter"), _) | (Some("incomplete"), Some("content_filter")) => FinishReason::ContentFilter,
            (Some("length" | "max_tokens" | "model_length" | "incomplete"), _) => FinishReason::Length,
            _ => FinishReason::Stop,
        }
    }
}

/// A call that the model requested, with the ids exactly as sent by the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// `Mcp` for a call that the provider runs itself once it is approved: see [`is_approval_request`](Self::is_approval_request).
    pub kind: CallKind,
    pub item_id: Option<String>,
    pub call_id: Option<String>,
    /// The index among the output items of the answer. Gaps are normal, because texts and reasoning have indexes too.
    pub output_index: u32,
    pub name: String,
    /// The exact string; never repaired.
    pub arguments: String,
    /// As sent by the provider, if at all. The status can lag behind, so `Answer::executable` decides.
    pub status: Option<String>,
    /// The server that the provider would call, as the request named it; only with a call that the provider runs itself.
    pub server_label: Option<String>,
}

impl ToolCall {
    /// Whether the provider asks for permission to run the call itself (`mcp_approval_request`). The request has an item id and no call id.
    pub fn is_approval_request(&self) -> bool {
        self.kind == CallKind::Mcp
    }

    /// The id that pairs the call with its result, if the provider sent one.
    pub fn pairing_id(&self) -> Option<&str> {
        let id = if self.is_approval_request() { &self.item_id } else { &self.call_id };
        id.as_deref().filter(|id| !id.is_empty())
    }
}

/// An item that the provider ran itself, with the ids exactly as sent by the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderItem {
    /// The item's type in the API: `mcp_call`, `web_search_call`, `mcp_list_tools`, …
    pub kind: String,
    /// The response that contains the item.
    pub response_id: Option<String>,
    pub item_id: Option<String>,
    pub call_id: Option<String>,
    pub output_index: u32,
    pub name: Option<String>,
    /// The exact string, or the JSON of the field that replaces it (the `action` of a search).
    pub arguments: Option<String>,
    pub output: Option<Value>,
    /// As sent by the provider: `completed`, `failed`, `searching`, …
    pub status: Option<String>,
    pub error: Option<Value>,
    /// The item id of the request that was approved before this call ran.
    pub approval_request_id: Option<String>,
}

impl ProviderItem {
    /// The kind under which the call is stored; `None` for items that are not calls (tool lists).
    pub fn call_kind(&self) -> Option<CallKind> {
        match self.kind.as_str() {
            "mcp_call" => Some(CallKind::Mcp),
            "web_search_call" => Some(CallKind::WebSearch),
            other if other.ends_with("_call") => Some(CallKind::Custom),
            _ => None,
        }
    }

    /// Whether the item is a web search. Other actions of the same type only open pages that a search found.
    pub fn is_search(&self) -> bool {
        self.kind == "web_search_call" && is_search_action(self.arguments.as_deref())
    }

    /// Whether the item succeeded. The status can lag behind, so only an error or a failure status counts as failed.
    pub fn succeeded(&self) -> bool {
        self.error.is_none() && !matches!(self.status.as_deref(), Some("failed" | "incomplete"))
    }
}

/// Whether the action of a `web_search_call` is a search. The action comes with the end of the call, and older models send none: those count too.
pub fn is_search_action(action: Option<&str>) -> bool {
    let action: Option<Value> = action.and_then(|text| serde_json::from_str(text).ok());
    action.is_none_or(|action| action["type"].as_str().is_none_or(|kind| kind == "search"))
}

/// Token counts as reported by the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenUsage {
    pub input_tokens: i64,
    pub cached_tokens: i64,
    pub output_tokens: i64,
    pub reasoning_tokens: i64,
    pub total_tokens: i64,
}
