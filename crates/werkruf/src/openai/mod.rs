//! The OpenAI-compatible endpoints under `/v1`: models, Chat Completions, Responses, Conversations and embeddings. [`start`] starts a turn for a request of
//! either API; [`client_events`] converts the events of a turn into what such a client receives.
//!
//! Invariants: unknown request fields are ignored; calls of the server's own tools are never sent to the client; every error under
//! `/v1` has OpenAI's format.

mod chat;
mod chat_request;
mod client_calls;
pub(crate) mod client_events;
mod completion;
mod conversation_items;
mod conversations;
mod copies;
mod earlier_turn;
mod embeddings;
pub(crate) mod error_body;
mod failure;
mod inbound;
pub(crate) mod input;
mod limit_headers;
pub(crate) mod media_urls;
pub(crate) mod model;
mod models;
pub(crate) mod properties;
pub(crate) mod request_checks;
mod resent;
mod responses;
mod server_tools;
pub(crate) mod start;
mod stop_on_leave;
mod stored_completion;
mod target;
pub(crate) mod tools;
pub(crate) mod transcript;
mod unsupported;

use std::sync::Arc;

use crate::api::ApiState;
use crate::routing::ApiRouter;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .merge(models::routes())
        .merge(chat::routes())
        .merge(stored_completion::routes())
        .merge(responses::routes())
        .merge(conversations::routes())
        .merge(embeddings::routes())
}
