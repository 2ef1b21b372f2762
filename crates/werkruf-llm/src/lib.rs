//! Clients for language models: send one request, receive a stream of deltas and one assembled answer.
//!
//! Decoding has four stages, each without I/O and testable from bytes: `sse` and `framing` (bytes → payloads) → `decode`
//! (payload → event) → `assemble` (events → one answer) → `state` (may its calls run?). The last three exist once per API, in
//! `chat` and `responses`; `reader` connects them. This crate does not retry: a retry costs money and must be stored, so the turn does it.

mod annotations;
mod answer;
mod answer_stream;
mod carry;
mod chat;
mod egress;
mod embeddings;
mod encoding;
mod error;
mod framing;
pub mod history_formats;
mod http;
mod inspect;
mod offline;
mod overdue;
mod pinned;
pub mod prices;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod provider;
mod raw;
mod reader;
mod record;
mod refusal;
mod request;
mod response_stream;
mod responses;
mod retry_after;
mod secrets;
mod server;
mod size;
mod sse;
mod stream_error;
mod tokens;
mod usage;
mod vocabulary;
mod web_search;

pub use answer::{Answer, Delta, ProviderItem, TokenUsage, ToolCall, is_search_action};
pub use answer_stream::AnswerStream;
pub use chat::ChatProvider;
pub use egress::{Egress, network};
pub use embeddings::{Embedded, Embeddings};
pub use error::{ModelError, ModelFault};
pub use http::{HttpLimits, cause, http_client, install_tls, pinned_client, tool_client};
pub use inspect::{WireApi, inspect};
pub use offline::{OfflineProvider, PlannerMessage, Proposer};
pub use overdue::{in_time, overdue};
pub use refusal::RefusalReason;
pub use request::{ApprovalAnswer, HistoryCall, Message, ModelRequest, ToolChoice, ToolDefinition};
pub use responses::ResponsesProvider;
pub use retry_after::retry_after;
pub use server::{ConfigError, ServerConfig};
pub use size::RequestSize;
pub use sse::{MAX_EVENT_BYTES, SseDecoder, SseError, SseEvent};
pub use tokens::{count_tokens, decode_embedding_tokens};
pub use web_search::{WebSearch, WebSearchRequest, WebSearchResult};

use serde_json::Value;
use werkruf_contract::BoxFuture;

/// A provider of language model answers.
pub trait Provider: Send + Sync {
    /// The value for `api_usage.provider` and the start-up log line: `openai`, `offline`, a host name.
    fn name(&self) -> &str;
    /// The model for assistants that do not name one.
    fn default_model(&self) -> &str;
    /// Whether the provider can write free text; the offline planner cannot.
    fn writes_text(&self) -> bool {
        true
    }
    /// Whether an answer with this `Answer::carry` came from this provider and model, so that requests for permission in it can be answered here.
    fn takes_answer(&self, _model: Option<&str>, _carry: &Value) -> bool {
        false
    }
    /// What the request uses at most.
    fn size(&self, request: &ModelRequest) -> RequestSize;
    /// Sends one request, without retries. Resolves when the response head has arrived, so that the caller can delay reading the body.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>>;
}
