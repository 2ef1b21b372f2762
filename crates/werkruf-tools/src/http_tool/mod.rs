//! HTTP tools that operators declare in the config file: one HTTP request per attempt.
//!
//! `config` validates a declaration before the server starts, `send` sends one request, `response` parses the response.
//! The call pipeline does retries, approvals and records; a failure here only states whether the effect may have
//! happened.

mod config;
mod response;
mod send;

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;
use werkruf_contract::{BoxFuture, Clock, Failure, Invocation, Reply, Shape, ToolObject, ToolSpec, Violation};

pub use config::HttpToolConfig;

use crate::declared_fields::{ConfigFault, Variables, normalized, timeout_ms};

/// A tool that an operator declared.
pub struct HttpTool {
    spec: ToolSpec,
    timeout: Duration,
    parameters: Value,
    shape: Shape,
    target: send::Target,
}

impl HttpTool {
    /// Validates a declaration and builds the tool. The client must not follow redirects; `env` reads the environment.
    pub fn new(config: HttpToolConfig, client: reqwest::Client, clock: &Clock, env: Variables<'_>) -> Result<Self, ConfigFault> {
        config.check_plain_fields()?;
        let (parameters, shape) = config.schema()?;
        let target = send::Target::new(&config, client, clock, env)?;
        let (effect, version) = (config.effect()?, config.digest());
        let timeout = Duration::from_millis(timeout_ms(config.timeout_ms));
        let spec = ToolSpec {
            permission: config.need()?,
            price_nano_usd: config.price_nano_usd()?,
            timeout: Some(timeout),
            attempts: config.attempts,
            reuse: config.reuse_s.map(Duration::from_secs),
            repeat_limit: config.repeat_limit,
            version: Cow::Owned(version),
            answers_directly: config.answers_directly()?,
            max_response_bytes: usize::try_from(config.max_response_bytes).unwrap_or(usize::MAX),
            tenants: config.tenants,
            trust: config.trust,
            external: config.external,
            approval: config.approval.into_iter().map(Cow::Owned).collect(),
            ..ToolSpec::new(config.name, config.description, effect)
        };
        Ok(Self { spec, timeout, parameters, shape, target })
    }
}

impl std::fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl ToolObject for HttpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>> {
        normalized(args, &self.parameters, Some(&self.shape))
    }

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move { self.target.send(&args, &invocation, self.timeout).await })
    }
}
