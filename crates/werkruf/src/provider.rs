//! Builds the model provider from the configuration.

use std::sync::Arc;
use std::time::Duration;

use werkruf_llm::{ChatProvider, ConfigError, Embeddings, Provider, ResponsesProvider, ServerConfig, WebSearch};
use werkruf_runtime::ModelProviders;

use crate::config::{Config, ModelApi, ModelConfig, ModelServer};
use crate::planner::Planner;
use crate::start_error::StartError;

/// Placeholder for the model's name when the configuration has none.
const NAMELESS: &str = "unnamed";

/// Builds the provider. It connects only if the model's name is missing, to list the available models in the error.
pub async fn build(config: &Config, client: &reqwest::Client) -> Result<Arc<dyn Provider>, StartError> {
    build_with(config, client, &Planner::default()).await
}

/// Like [`build`]; without a configured model the planner's offline provider is used.
pub async fn build_with(config: &Config, client: &reqwest::Client, planner: &Planner) -> Result<Arc<dyn Provider>, StartError> {
    let ModelConfig::Server(model) = &config.model else { return Ok(Arc::new(planner.provider())) };
    let Some(name) = &model.model else { return Err(StartError::Model(missing_name(config, model, client).await)) };
    let server = server(config, model, name, client);
    let provider: Result<Arc<dyn Provider>, ConfigError> = match model.api {
        ModelApi::Chat => ChatProvider::new(server).map(|provider| Arc::new(provider) as _),
        ModelApi::Responses => ResponsesProvider::new(server).map(|provider| Arc::new(provider) as _),
    };
    provider.map_err(|error| StartError::Model(error.to_string()))
}

/// Everything behind the model gate: the given chat provider, its web search, and the embedding model.
pub(crate) fn providers(config: &Config, client: &reqwest::Client, chat: Arc<dyn Provider>) -> Result<ModelProviders, StartError> {
    let failed = |error: ConfigError| StartError::Model(error.to_string());
    let web_search = match &config.model {
        ModelConfig::Offline => None,
        ModelConfig::Server(model) => {
            let name = model.model.as_deref().unwrap_or_else(|| chat.default_model());
            Some(WebSearch::new(server(config, model, name, client)).map_err(failed)?)
        }
    };
    let embeddings = config.embedding.as_ref().map(|server| {
        let limit = Duration::from_millis(config.limits.model_first_byte_ms);
        Embeddings::new(ServerConfig {
            name: host_name(&server.base_url),
            base_url: server.base_url.clone(),
            api_key: server.api_key.clone(),
            model: server.model.clone(),
            headers: Vec::new(),
            max_output_tokens: 1,
            first_byte: limit,
            idle: limit,
            record: None,
            client: client.clone(),
        })
    });
    Ok(ModelProviders { chat, web_search, embeddings: embeddings.transpose().map_err(failed)? })
}

/// One line for users: which model answers, and whether it costs money.
pub fn describe(model: &ModelConfig) -> String {
    match model {
        ModelConfig::Offline => "offline (no language model, free; set OPENAI_API_KEY or OPENAI_BASE_URL to connect one)".to_owned(),
        ModelConfig::Server(server) => {
            let paid = if server.is_paid() { "paid" } else { "not paid, as far as its address tells" };
            format!("{} at {} ({paid})", server.model.as_deref().unwrap_or(NAMELESS), server.base_url)
        }
    }
}

/// The address of the model server, as the subject of a sentence.
pub(crate) fn host(model: &ModelConfig) -> &str {
    match model {
        ModelConfig::Offline => "the offline model",
        ModelConfig::Server(server) => &server.base_url,
    }
}

/// The connection settings of a model server.
pub(crate) fn server(config: &Config, model: &ModelServer, name: &str, client: &reqwest::Client) -> ServerConfig {
    ServerConfig {
        name: provider_name(model),
        base_url: model.base_url.clone(),
        api_key: model.api_key.clone(),
        model: name.to_owned(),
        headers: model.headers.clone(),
        max_output_tokens: model.max_output_tokens,
        first_byte: Duration::from_millis(config.limits.model_first_byte_ms),
        idle: Duration::from_millis(config.limits.model_idle_ms),
        record: model.record.clone(),
        client: client.clone(),
    }
}

fn provider_name(model: &ModelServer) -> String {
    host_name(&model.base_url)
}

/// The server's name in usage rows: `openai`, or its host.
pub(crate) fn host_name(base_url: &str) -> String {
    let host = reqwest::Url::parse(base_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.filter(|host| host != "api.openai.com" && !host.ends_with(".api.openai.com")).unwrap_or_else(|| "openai".to_owned())
}

async fn missing_name(config: &Config, model: &ModelServer, client: &reqwest::Client) -> String {
    let base_url = &model.base_url;
    // Both APIs list their models at the same path.
    let listed = match ChatProvider::new(server(config, model, NAMELESS, client)) {
        Ok(provider) => provider.models().await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match listed {
        Ok(models) if models.is_empty() => format!("set OPENAI_MODEL; {base_url}/models lists none"),
        Ok(models) => format!("set OPENAI_MODEL to one of those {base_url} offers: {}", models.join(", ")),
        Err(reason) => format!("set OPENAI_MODEL; {base_url}/models did not say which there are ({reason})"),
    }
}
