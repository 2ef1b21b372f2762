//! A server behind HTTP, whichever API it speaks: one provider, and an [`Api`] per dialect.

use std::fmt::Debug;

use werkruf_contract::BoxFuture;

use crate::carry::Origin;
use crate::encoding::ToolCache;
use crate::reading::Wire;
use crate::server::{ConfigError, Server, ServerConfig};
use crate::{AnswerStream, ModelError, ModelRequest, Provider, ToolDefinition};

/// How one API is spoken. The value says how one server differs.
pub(crate) trait Api: Debug + Send + Sync + 'static {
    /// For recordings and for what is carried.
    const NAME: &'static str;
    /// Where it answers, after the base address.
    const PATH: &'static [&'static str];
    /// Reads its answers.
    type Answers: Wire + Send + 'static;

    /// As the server at this host wants it.
    fn at(host: &str) -> Self;
    /// The body of a request.
    fn body(&self, request: &ModelRequest, origin: &Origin, max_output_tokens: u32, tools: &ToolCache) -> serde_json::Result<Vec<u8>>;
    /// The tools in this API's shape.
    fn tools(tools: &[ToolDefinition]) -> serde_json::Result<Vec<u8>>;
}

/// A server that speaks one API.
#[derive(Debug)]
pub struct HttpProvider<A> {
    server: Server,
    api: A,
    tools: ToolCache,
}

#[expect(private_bounds, reason = "the APIs are known here, and nobody outside adds one")]
impl<A: Api> HttpProvider<A> {
    /// Checks the configuration; connects nowhere.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        let server = Server::new(config, A::NAME, A::PATH)?;
        let api = A::at(server.host());
        Ok(Self { server, api, tools: ToolCache::new(A::tools) })
    }

    /// The models the server offers, as it names them.
    pub async fn models(&self) -> Result<Vec<String>, ModelError> {
        self.server.models().await
    }

    async fn begin(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        let config = &self.server.config;
        let origin = self.server.origin(request.model.as_deref().unwrap_or(&config.model));
        let body = self.api.body(&request, &origin, config.max_output_tokens, &self.tools);
        drop(request);
        self.server.ask::<A::Answers>(body, origin).await
    }
}

impl<A: Api> Provider for HttpProvider<A> {
    fn name(&self) -> &str {
        &self.server.config.name
    }

    fn default_model(&self) -> &str {
        &self.server.config.model
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        Box::pin(self.begin(request))
    }
}
