//! What a tool may request from models. The runtime implements it: it admits, bounds and records each request. A tool never sees a provider.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::cancel::Deadline;
use crate::error::Failure;
use crate::tool::BoxFuture;

/// A request for a text, without tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextRequest {
    pub system: String,
    /// The user's messages, in order.
    pub messages: Vec<String>,
    /// Not sent to models that refuse it.
    pub temperature: Option<f64>,
    /// The user's locale. Its region narrows a web search to a country.
    pub locale: String,
}

/// A model's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextAnswer {
    pub text: String,
    pub model: String,
    /// Web searches that happened.
    pub searches: u32,
    pub citations: Vec<Citation>,
    /// Input and output tokens, where the provider reported them.
    pub tokens: Option<(i64, i64)>,
}

/// The source of a sentence. The indexes count characters and lie inside the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Citation {
    pub url: String,
    pub title: String,
    pub start_index: usize,
    pub end_index: usize,
    pub cited_text: String,
}

/// Access to models for one user. Each method sends one request, and its usage is recorded.
pub trait Models: std::fmt::Debug + Send + Sync {
    /// A text from the language model.
    fn answer(&self, request: TextRequest, deadline: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>>;
    /// The same, with the provider's own web search.
    fn search_web(&self, request: TextRequest, deadline: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>>;
    /// One vector per text, in order.
    fn embed(&self, texts: Vec<String>, deadline: Deadline) -> BoxFuture<'_, Result<Vec<Vec<f32>>, Failure>>;
}

/// Makes model access for work that belongs to no turn.
pub trait ModelSource: Send + Sync {
    /// For a user of a tenant; an empty user id where no user requested the work.
    fn models_for(&self, tenant_id: Uuid, user_id: &str) -> std::sync::Arc<dyn Models>;
    /// The embedding model; `None` where none is configured.
    fn embedding_model(&self) -> Option<&str>;
}

/// Access to no model at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoModels;

impl NoModels {
    /// The failure of every request.
    pub fn not_configured() -> Failure {
        let message = "No language model is configured. An operator can connect one with OPENAI_API_KEY.";
        Failure::fatal("not_configured", message).nothing_happened()
    }
}

impl Models for NoModels {
    fn answer(&self, _: TextRequest, _: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>> {
        Box::pin(std::future::ready(Err(Self::not_configured())))
    }

    fn search_web(&self, _: TextRequest, _: Deadline) -> BoxFuture<'_, Result<TextAnswer, Failure>> {
        Box::pin(std::future::ready(Err(Self::not_configured())))
    }

    fn embed(&self, _: Vec<String>, _: Deadline) -> BoxFuture<'_, Result<Vec<Vec<f32>>, Failure>> {
        Box::pin(std::future::ready(Err(Self::not_configured())))
    }
}
