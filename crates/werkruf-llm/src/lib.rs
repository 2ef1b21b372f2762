//! What the model says: one request out, one stream of deltas back, one assembled answer.
//!
//! Decoding is four small parts, each pure and testable from bytes:
//! `sse` (bytes → events) → `chat::decode` (event → chunk) → `chat::assemble` (chunks → answer) → `chat::decide` (may its calls run?).
//! Nothing here retries: a retry costs money and must be recorded, so the turn does it.

mod answer;
mod chat;
mod error;
pub mod history_formats;
mod http;
mod inspect;
mod offline;
pub mod prices;
mod request;
mod retry_after;
mod sse;

pub use answer::{Answer, AskedCall, Delta, TokenUsage};
pub use chat::{ChatConfig, ChatProvider, ConfigError};
pub use error::{ModelError, ModelFault};
pub use http::{HttpLimits, http_client, install_tls};
pub use inspect::{InspectError, WireApi, inspect};
pub use offline::{OfflineProvider, Proposer};
pub use request::{HistoryCall, Message, ModelRequest, ToolChoice, ToolDefinition};
pub use sse::{MAX_EVENT_BYTES, SseDecoder, SseError, SseEvent};

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
    /// Sends once. Resolves when the answer's head is there, so that what follows can be held back.
    fn ask(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>>;
}
