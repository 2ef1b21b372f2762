//! A server that speaks Responses.

use werkruf_contract::BoxFuture;

use super::assemble::Assembly;
use super::encode::{Dialect, encode, encode_tools};
use crate::encoding::ToolCache;
use crate::server::{ConfigError, Server, ServerConfig};
use crate::{AnswerStream, ModelError, ModelRequest, Provider};

/// A Responses server.
#[derive(Debug)]
pub struct ResponsesProvider {
    server: Server,
    dialect: Dialect,
    tools: ToolCache,
}

impl ResponsesProvider {
    /// Checks the configuration; connects nowhere.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        let server = Server::new(config, "responses", &["responses"])?;
        let dialect = Dialect { pairs: server.host().ends_with("deepseek.com") };
        Ok(Self { server, dialect, tools: ToolCache::new(encode_tools) })
    }

    /// The models the server offers, as it names them.
    pub async fn models(&self) -> Result<Vec<String>, ModelError> {
        self.server.models().await
    }

    async fn begin(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        let config = &self.server.config;
        let origin = self.server.origin(request.model.as_deref().unwrap_or(&config.model));
        let body = encode(&request, &origin, config.max_output_tokens, self.dialect, &self.tools);
        drop(request);
        self.server.ask::<Assembly>(body, origin).await
    }
}

impl Provider for ResponsesProvider {
    fn name(&self) -> &str {
        &self.server.config.name
    }

    fn default_model(&self) -> &str {
        &self.server.config.model
    }

    fn ask(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        Box::pin(self.begin(request))
    }
}
