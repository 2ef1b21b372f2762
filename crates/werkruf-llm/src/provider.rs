//! A provider behind HTTP, with one [`Api`] implementation per API.

use std::fmt::Debug;

use serde_json::Value;
use werkruf_contract::BoxFuture;

use crate::carry::Origin;
use crate::encoding::ToolCache;
use crate::reader::Wire;
use crate::server::{ConfigError, Server, ServerConfig};
use crate::size::without_attachments;
use crate::{AnswerStream, ModelError, ModelRequest, Provider, RequestSize, ToolDefinition};

/// An API. The value holds how one server deviates from it.
pub(crate) trait Api: Debug + Send + Sync + 'static {
    /// For recordings and for the origin of carried data.
    const NAME: &'static str;
    /// The path after the base URL.
    const PATH: &'static [&'static str];
    /// Assembles the answers.
    type Assembly: Wire + Send + 'static;

    /// The variant of the API that this host needs.
    fn at(host: &str) -> Self;
    /// The body of a request.
    fn body(&self, request: &ModelRequest, origin: &Origin, max_output_tokens: u32, tools: &ToolCache) -> serde_json::Result<Vec<u8>>;
    /// The tools in the API's format.
    fn tools(tools: &[ToolDefinition]) -> serde_json::Result<Vec<u8>>;
}

/// A server with this API.
#[derive(Debug)]
pub struct HttpProvider<A> {
    server: Server,
    api: A,
    tools: ToolCache,
}

#[expect(private_bounds, reason = "only this crate implements APIs")]
impl<A: Api> HttpProvider<A> {
    /// Checks the configuration; does not connect.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        let server = Server::new(config, A::NAME, A::PATH)?;
        let api = A::at(server.host());
        Ok(Self { server, api, tools: ToolCache::new(A::tools) })
    }

    /// The ids of the models that the server offers.
    pub async fn models(&self) -> Result<Vec<String>, ModelError> {
        self.server.models().await
    }

    async fn send(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        let config = &self.server.config;
        let origin = self.server.origin(request.model.as_deref().unwrap_or(&config.model));
        let body = self.api.body(&request, &origin, config.max_output_tokens, &self.tools);
        drop(request);
        self.server.stream::<A::Assembly>(body, origin).await
    }
}

impl<A: Api> Provider for HttpProvider<A> {
    fn name(&self) -> &str {
        &self.server.config.name
    }

    fn default_model(&self) -> &str {
        &self.server.config.model
    }

    fn size(&self, request: &ModelRequest) -> RequestSize {
        let config = &self.server.config;
        let origin = self.server.origin(request.model.as_deref().unwrap_or(&config.model));
        let (plain, attached_tokens) = without_attachments(request, &origin.model);
        let body = self.api.body(plain.as_ref().unwrap_or(request), &origin, config.max_output_tokens, &self.tools);
        RequestSize {
            // A body that cannot be encoded is never sent.
            text: body.ok().and_then(|body| String::from_utf8(body).ok()).unwrap_or_default(),
            attached_tokens,
            max_output_tokens: u64::from(request.token_limit(config.max_output_tokens)),
        }
    }

    fn takes_answer(&self, model: Option<&str>, carry: &Value) -> bool {
        self.server.origin(model.unwrap_or(&self.server.config.model)).content_of(Some(carry)).is_some()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        Box::pin(self.send(request))
    }
}
