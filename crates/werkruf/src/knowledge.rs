//! Builds the knowledge base and the model client of `ask_gpt` from the configuration.

use std::sync::Arc;
use std::time::Duration;

use werkruf_contract::Clock;
use werkruf_llm::{Embeddings, Provider, ServerConfig, WebSearch};
use werkruf_store::Knowledge;
use werkruf_tools::{Embedder, KnowledgeBase, Oracle};

use crate::app::StartError;
use crate::config::{Config, ModelConfig};
use crate::provider;

/// Builds the knowledge base; opens no connection.
pub(crate) fn base(
    config: &Config,
    client: &reqwest::Client,
    store: Arc<dyn Knowledge>,
    clock: &Clock,
) -> Result<KnowledgeBase, StartError> {
    let embedder = match &config.embedding {
        None => None,
        Some(server) => {
            let limit = Duration::from_millis(config.limits.model_first_byte_ms);
            let settings = ServerConfig {
                name: provider::host_name(&server.base_url),
                base_url: server.base_url.clone(),
                api_key: server.api_key.clone(),
                model: server.model.clone(),
                headers: Vec::new(),
                max_output_tokens: 1,
                first_byte: limit,
                idle: limit,
                record: None,
                client: client.clone(),
            };
            let client = Embeddings::new(settings).map_err(|error| StartError::Model(error.to_string()))?;
            Some(Arc::new(Embedder::new(client, server.languages.clone(), Arc::clone(&config.prices), clock.clone())))
        }
    };
    Ok(KnowledgeBase::new(store, embedder, clock.clone()))
}

/// What `ask_gpt` uses: the configured model and the same server's web search. Both are absent if no language model is
/// configured.
pub(crate) fn ask_gpt(config: &Config, client: &reqwest::Client, provider: &Arc<dyn Provider>) -> Result<Oracle, StartError> {
    let prices = Arc::clone(&config.prices);
    let ModelConfig::Server(server) = &config.model else { return Ok(Oracle { prices, ..Oracle::default() }) };
    let name = server.model.as_deref().unwrap_or_else(|| provider.default_model());
    let web = WebSearch::new(provider::server(config, server, name, client)).map_err(|error| StartError::Model(error.to_string()))?;
    Ok(Oracle { provider: Some(Arc::clone(provider)), web: Some(web), prices })
}
