//! The doors for clients that speak OpenAI's languages. One entry ([`begin`]) takes what a client brings to the runtime,
//! one listener ([`heard`]) turns the events of a turn into what such a client may hear; the doors only differ in their words.
//!
//! Invariants: unknown fields are never refused; calls of the server's own tools are never shown; every refusal under
//! `/v1` has OpenAI's shape.

pub(crate) mod begin;
mod chat;
mod chat_request;
mod completion;
pub(crate) mod heard;
pub(crate) mod input;
pub(crate) mod model;
mod models;
pub(crate) mod refusal;
mod responses;
pub(crate) mod seen;
pub(crate) mod tools;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

use crate::api::Door;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().merge(models::routes()).merge(chat::routes()).merge(responses::routes())
}
