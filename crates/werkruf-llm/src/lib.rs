//! What the model says: one request out, one stream of deltas back, one assembled answer.
//!
//! Decoding is four small parts, each pure and testable from bytes: `sse` and `framing` (bytes → payloads) → `decode`
//! (payload → what it says) → `assemble` (→ one answer) → `decide` (may its calls run?). The last three are there once per API, in
//! `chat` and `responses`; `reading` joins them. Nothing here retries: a retry costs money and must be recorded, so the turn does it.

mod answer;
mod carry;
mod chat;
mod embeddings;
mod encoding;
mod error;
mod flow;
mod framing;
pub mod history_formats;
mod http;
mod inspect;
mod offline;
mod overdue;
#[cfg(any(test, fuzzing))]
pub mod parts;
pub mod prices;
mod provider;
mod raw;
mod reading;
mod record;
mod refusal;
mod request;
mod responses;
mod retry_after;
mod secrets;
mod server;
mod sse;
mod tokens;
mod usage;
mod web_search;

pub use answer::{Answer, Delta, ProviderItem, TokenUsage, ToolCall};
pub use chat::ChatProvider;
pub use embeddings::{Embedded, Embeddings};
pub use error::{ModelError, ModelFault};
pub use http::{HttpLimits, http_client, install_tls};
pub use inspect::{WireApi, inspect};
pub use offline::{OfflineProvider, Proposer};
pub use overdue::{in_time, overdue};
pub use request::{HistoryCall, Message, ModelRequest, ToolChoice, ToolDefinition};
pub use responses::ResponsesProvider;
pub use retry_after::retry_after;
pub use server::{ConfigError, ServerConfig};
pub use sse::{MAX_EVENT_BYTES, SseDecoder, SseError, SseEvent};
pub use tokens::count_tokens;
pub use web_search::{Citation, WebSearch, WebSearchRequest, WebSearchResult};

use futures_util::stream::BoxStream;
use werkruf_contract::BoxFuture;

/// The deltas of one answer. The last item is `Delta::Done` or an error; nothing follows either.
pub type AnswerStream = BoxStream<'static, Result<Delta, ModelError>>;

/// A place that answers model requests.
pub trait Provider: Send + Sync {
    /// For `api_usage.provider` and the start-up line: `openai`, `offline`, a host name.
    fn name(&self) -> &str;
    /// The model used where an assistant names none.
    fn default_model(&self) -> &str;
    /// Whether it can put something in its own words; a planner cannot.
    fn writes_text(&self) -> bool {
        true
    }
    /// Sends once. Resolves when the answer's head is there, so that what follows can be held back.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>>;
}
