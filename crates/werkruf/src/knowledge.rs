//! Builds the knowledge base from the configuration.

use std::sync::Arc;

use werkruf_contract::{Clock, ModelSource};
use werkruf_knowledge::{Embedder, Knowledge, KnowledgeBase};

use crate::config::{Config, ModelConfig};

/// Builds the knowledge base; opens no connection.
pub(crate) fn base(config: &Config, models: Arc<dyn ModelSource>, store: Arc<dyn Knowledge>, clock: &Clock) -> KnowledgeBase {
    let languages = config.embedding.as_ref().map(|server| server.languages.clone()).unwrap_or_default();
    // Without a language model nobody can search the web, so no web search is offered.
    let has_model = matches!(config.model, ModelConfig::Server(_));
    let has_ask_gpt = has_model && config.modules.ask_gpt && !config.disabled_tools.iter().any(|tool| tool == "ask_gpt");
    // `/v1/embeddings` needs no module; documents get vectors only where the module is on.
    let embedder = if config.modules.knowledge { Embedder::new(models, languages, clock.clone()) } else { None };
    KnowledgeBase::new(store, embedder.map(Arc::new), clock.clone()).offering_ask_gpt(has_ask_gpt)
}
