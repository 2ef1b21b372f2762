//! A tool without static types: what the registry keeps and the pipeline calls.

use jiff::civil::Date;
use serde_json::Value;

use crate::check::Violation;
use crate::error::Failure;
use crate::error_code::ErrorCode;
use crate::tool::{BoxFuture, Invocation, Reply, State, Tool, ToolSpec};
use crate::{output_of_type, parameters_of};

/// A tool as a trait object, with JSON arguments and results. The registry and tools from the configuration use it.
pub trait ToolObject: Send + Sync + 'static {
    fn spec(&self) -> &ToolSpec;
    /// JSON Schema of the arguments.
    fn parameters(&self) -> &Value;
    /// JSON Schema of the reply's data, if it is known and the data are an object.
    fn output_schema(&self) -> Option<&Value> {
        None
    }
    /// The arguments with defaults filled in, as they are passed to the tool and compared with other calls.
    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>> {
        Ok(args)
    }
    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>>;
    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Value> {
        let _ = (text, locale, today);
        None
    }
    fn follow_up(&self, result: &Value, text: &str, locale: &str, today: Date) -> Option<Value> {
        let _ = (result, text, locale, today);
        None
    }
    fn last_resort(&self, text: &str) -> Option<Value> {
        let _ = text;
        None
    }
    fn claims(&self, state: &State, text: &str) -> Option<Value> {
        let _ = (state, text);
        None
    }
    /// The session state fields that hold an offer of this tool.
    fn offers(&self) -> &'static [&'static str] {
        &[]
    }
    /// The session state fields that belong to this tool. Of all tools only their owners may change them.
    fn owns_state(&self) -> &'static [&'static str] {
        self.offers()
    }
}

/// Adapts a `Tool` to `ToolObject`.
pub struct Typed<T> {
    tool: T,
    spec: ToolSpec,
    parameters: Value,
    output: Option<Value>,
}

impl<T: Tool> Typed<T> {
    /// Wraps a tool for the registry.
    pub fn new(tool: T) -> Self {
        Self { spec: tool.spec(), parameters: parameters_of::<T::Args>(), output: output_of_type::<T::Output>(), tool }
    }
}

impl<T: Tool> ToolObject for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn output_schema(&self) -> Option<&Value> {
        self.output.as_ref()
    }

    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>> {
        let typed: T::Args = serde_json::from_value(args).map_err(|error| vec![Violation::new("", error.to_string())])?;
        serde_json::to_value(typed).map_err(|error| vec![Violation::new("", error.to_string())])
    }

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move {
            let args = serde_json::from_value(args)
                .map_err(|error| Failure::validation(ErrorCode::InvalidArguments, format!("The arguments do not fit: {error}")))?;
            let reply = self.tool.call(args, invocation).await?;
            let data = serde_json::to_value(&reply.data).map_err(|error| {
                Failure::fatal(ErrorCode::BadResponse, "The tool's answer could not be written as JSON.").because(error.to_string())
            })?;
            Ok(reply.map(|_| data))
        })
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Value> {
        serde_json::to_value(self.tool.propose(text, locale, today)?).ok()
    }

    fn follow_up(&self, result: &Value, text: &str, locale: &str, today: Date) -> Option<Value> {
        serde_json::to_value(self.tool.follow_up(result, text, locale, today)?).ok()
    }

    fn last_resort(&self, text: &str) -> Option<Value> {
        serde_json::to_value(self.tool.last_resort(text)?).ok()
    }

    fn claims(&self, state: &State, text: &str) -> Option<Value> {
        serde_json::to_value(self.tool.claims(state, text)?).ok()
    }

    fn offers(&self) -> &'static [&'static str] {
        self.tool.offers()
    }

    fn owns_state(&self) -> &'static [&'static str] {
        self.tool.owns_state()
    }
}
