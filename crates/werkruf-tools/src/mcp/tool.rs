//! One tool of an MCP server.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject};
use serde_json::{Value, json};
use tokio::sync::SemaphorePermit;
use werkruf_contract::{BoxFuture, ErrorCode, Failure, Invocation, Reply, Shape, ToolObject, ToolSpec, Violation};
use werkruf_llm::in_time;

use super::definition::Definition;
use super::link::Link;
use super::result;
use crate::declared_fields::normalized;

/// Where a server that knows this one finds the key of a call.
const IDEMPOTENCY_KEY: &str = "werkruf/idempotency-key";

/// A tool that a server offers and the operator knows.
pub(super) struct McpTool {
    definition: Definition,
    shape: Option<Shape>,
    link: Arc<Link>,
}

impl McpTool {
    pub(super) fn new(definition: Definition, link: Arc<Link>) -> Self {
        // It compiled when the definition was read.
        let shape = Shape::compile(&definition.parameters).ok();
        Self { definition, shape, link }
    }

    pub(super) const fn definition(&self) -> &Definition {
        &self.definition
    }

    async fn send(&self, args: Value, invocation: &Invocation) -> Result<Reply, Failure> {
        let sent = async {
            let _slot = self.slot().await?;
            // The connection of a person is opened with the token of the person.
            let shared = match self.link.personal() {
                Some(_) => None,
                None => Some(self.link.peer().await.ok_or_else(result::unreachable)?),
            };
            // A running turn may still have a tool whose definition has changed since.
            if !self.link.offers(&self.definition.spec.name, &self.definition.digest) {
                let message =
                    "The server has changed the definition of this tool, so it is disabled until the operator accepts the change.";
                return Err(Failure::fatal(ErrorCode::ToolChanged, message).nothing_happened());
            }
            let mut params = CallToolRequestParams::new(self.definition.own_name.clone());
            params.arguments = args.as_object().cloned();
            let mut meta = MetaObject::default();
            meta.insert(IDEMPOTENCY_KEY.to_owned(), json!(invocation.idempotency_key));
            params.meta = Some(RequestMetaObject(meta));
            // A request that is dropped before its answer is canceled at the server.
            let response = match (shared, self.link.personal()) {
                (Some(peer), _) => peer.call_tool_once(params).await.map_err(|error| result::failure(&error))?,
                (None, Some(personal)) => Box::pin(personal.call(params, invocation)).await?,
                (None, None) => return Err(result::unreachable()),
            };
            result::reply(response, self.definition.spec.effect)
        };
        tokio::select! {
            biased;
            outcome = in_time(invocation.deadline, sent) => outcome.unwrap_or_else(|| Err(result::timed_out())),
            () = invocation.cancel.raised() => Err(Failure::fatal(ErrorCode::Canceled, "The call was canceled.")),
        }
    }

    async fn slot(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.link.slots().acquire().await.map_err(|_| result::unreachable())
    }
}

impl ToolObject for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.definition.spec
    }

    fn parameters(&self) -> &Value {
        &self.definition.parameters
    }

    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>> {
        normalized(args, &self.definition.parameters, self.shape.as_ref())
    }

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move { self.send(args, &invocation).await })
    }
}
