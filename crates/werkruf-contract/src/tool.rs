//! A tool is one file: an args type that is also its schema, a spec, and `call`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::cancel::{Cancel, Deadline};
use crate::check::Violation;
use crate::context::ToolContext;
use crate::error::Failure;
use crate::principal::{Need, Principal, Scope};
use crate::{Effect, parameters_of};

/// A boxed future; boxed only where tools of many types meet.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Session state of a conversation.
pub type State = Map<String, Value>;

/// Merges a patch shallowly; null clears a field.
pub fn merge_state(state: &mut State, patch: State) {
    for (field, value) in patch {
        if value.is_null() {
            state.remove(&field);
        } else {
            state.insert(field, value);
        }
    }
}

/// Merges the patch of a call that saw `base`, while its neighbours may have changed the state since: what it adds to the end of a
/// list is added to the list of now. The patch becomes what was merged.
pub fn merge_concurrent(now: &mut State, base: &State, patch: &mut State) {
    for (field, value) in patch.iter_mut() {
        let (Value::Array(wanted), Some(Value::Array(there))) = (&mut *value, now.get(field)) else { continue };
        let known = base.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if there.as_slice() != known && wanted.starts_with(known) {
            let added = wanted.split_off(known.len());
            *wanted = there.iter().cloned().chain(added).collect();
        }
    }
    merge_state(now, patch.clone());
}

/// What the runtime must know of a tool before it runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    pub name: Cow<'static, str>,
    pub description: Cow<'static, str>,
    pub effect: Effect,
    /// The right the caller needs; `None` needs none.
    pub permission: Option<Need>,
    pub timeout: Duration,
    /// Attempts in all, the first included. A `once` tool has one whatever stands here.
    pub attempts: u32,
    /// How long a result may be reused beyond the turn; zero means inside the turn only.
    pub reuse: Duration,
    /// The roles of which one must approve each call; empty needs nobody's word.
    pub approval: Vec<Cow<'static, str>>,
    /// Changes whenever a stored result must not be reused any more.
    pub version: Cow<'static, str>,
    /// Its message is the answer; the model is not asked again.
    pub answers_directly: bool,
    /// Calls of this tool at once, over all conversations; zero means no limit of its own.
    pub concurrency: usize,
    /// A larger answer is refused as `response_too_large`.
    pub max_response_bytes: usize,
}

impl ToolSpec {
    /// A spec with the house's defaults: 30 s, three attempts, no right needed.
    pub fn new(name: impl Into<Cow<'static, str>>, description: impl Into<Cow<'static, str>>, effect: Effect) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            effect,
            permission: None,
            timeout: Duration::from_secs(30),
            attempts: 3,
            reuse: Duration::ZERO,
            approval: Vec::new(),
            version: Cow::Borrowed("1"),
            answers_directly: false,
            concurrency: 0,
            max_response_bytes: 1024 * 1024,
        }
    }

    /// How often this tool may be sent for one call.
    pub fn allowed_attempts(&self) -> u32 {
        match self.effect {
            Effect::Once => 1,
            Effect::Read | Effect::Idempotent => self.attempts.max(1),
        }
    }
}

/// What a tool is told beside its arguments. The model chose none of it.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub context: Arc<ToolContext>,
    pub principal: Arc<Principal>,
    /// Whose rows the call may touch; the tool's query applies it.
    pub grant: Scope,
    pub state: Arc<State>,
    pub deadline: Deadline,
    pub cancel: Cancel,
    /// `tool_calls.id`.
    pub job_id: Uuid,
    pub turn_id: Uuid,
    pub conversation_id: Option<Uuid>,
    /// Counts from 1.
    pub attempt: u32,
    /// The same for all attempts of one call.
    pub idempotency_key: String,
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<D = Value> {
    pub data: D,
    /// Text for a person; the whole answer where the tool answers directly.
    pub message: Option<String>,
    /// Merged shallowly into the session state; null clears a field.
    pub state_patch: Option<State>,
    pub source_counts: Option<BTreeMap<String, u64>>,
    pub routing: Option<Map<String, Value>>,
    pub token_usage: Option<BTreeMap<String, i64>>,
}

impl<D> Reply<D> {
    /// Just the data.
    pub const fn new(data: D) -> Self {
        Self { data, message: None, state_patch: None, source_counts: None, routing: None, token_usage: None }
    }

    /// With other data.
    pub fn map<E>(self, f: impl FnOnce(D) -> E) -> Reply<E> {
        Reply {
            data: f(self.data),
            message: self.message,
            state_patch: self.state_patch,
            source_counts: self.source_counts,
            routing: self.routing,
            token_usage: self.token_usage,
        }
    }
}

/// How a tool is written.
pub trait Tool: Send + Sync + 'static {
    /// What the model chooses; also the schema. Optional fields are `Option`.
    type Args: DeserializeOwned + Serialize + JsonSchema + Send;
    /// What the tool answers.
    type Output: Serialize + Send;

    /// Name, effect, limits.
    fn spec(&self) -> ToolSpec;

    /// Does the work.
    fn call(&self, args: Self::Args, invocation: Invocation) -> impl Future<Output = Result<Reply<Self::Output>, Failure>> + Send;

    /// What the offline planner would call for this text; it asks every tool, so it knows none by name.
    fn propose(&self, _text: &str, _locale: &str, _today: Date) -> Option<Self::Args> {
        None
    }

    /// An assent to what this tool offered in the state.
    fn claims(&self, _state: &State, _text: &str) -> Option<Self::Args> {
        None
    }

    /// The fields of the state that hold an offer of this tool; any message but an assent clears them.
    fn offers(&self) -> &'static [&'static str] {
        &[]
    }
}

/// A tool whose types are forgotten: what the registry holds and operators bring.
pub trait ToolObject: Send + Sync + 'static {
    fn spec(&self) -> &ToolSpec;
    /// JSON Schema of the arguments.
    fn parameters(&self) -> &Value;
    /// The arguments with defaults filled in, as they will run and be compared.
    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>>;
    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>>;
    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Value>;
    fn claims(&self, state: &State, text: &str) -> Option<Value>;
    /// The fields of the state that hold its offers.
    fn offers(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Forgets a tool's types.
pub struct Typed<T> {
    tool: T,
    spec: ToolSpec,
    parameters: Value,
}

impl<T: Tool> Typed<T> {
    /// Wraps a tool for the registry.
    pub fn new(tool: T) -> Self {
        Self { spec: tool.spec(), parameters: parameters_of::<T::Args>(), tool }
    }
}

impl<T: Tool> ToolObject for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>> {
        let typed: T::Args = serde_json::from_value(args).map_err(|error| vec![Violation::new("", error.to_string())])?;
        serde_json::to_value(typed).map_err(|error| vec![Violation::new("", error.to_string())])
    }

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move {
            let args = serde_json::from_value(args)
                .map_err(|error| Failure::validation("invalid_arguments", format!("The arguments do not fit: {error}")))?;
            let reply = self.tool.call(args, invocation).await?;
            let data = serde_json::to_value(&reply.data).map_err(|error| {
                Failure::fatal("bad_response", "The tool's answer could not be written as JSON.").because(error.to_string())
            })?;
            Ok(reply.map(|_| data))
        })
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Value> {
        serde_json::to_value(self.tool.propose(text, locale, today)?).ok()
    }

    fn claims(&self, state: &State, text: &str) -> Option<Value> {
        serde_json::to_value(self.tool.claims(state, text)?).ok()
    }

    fn offers(&self) -> &'static [&'static str] {
        self.tool.offers()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(value: &Value) -> State {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_neighbours_add_to_a_list_is_all_there() {
        let base = state(&json!({"memory": ["a"], "city": "Ulm", "list": [1, 2]}));
        let mut now = base.clone();
        for (mut patch, merged) in [
            (json!({"memory": ["a", "b"], "city": "Bonn"}), json!({"memory": ["a", "b"], "city": "Bonn", "list": [1, 2]})),
            (json!({"memory": ["a", "c"], "new": [1]}), json!({"memory": ["a", "b", "c"], "city": "Bonn", "list": [1, 2], "new": [1]})),
            // A list that is replaced, and a field that is cleared, are what the last one says.
            (json!({"memory": ["d"], "city": null, "new": [2]}), json!({"memory": ["d"], "list": [1, 2], "new": [1, 2]})),
        ]
        .map(|(patch, merged)| (state(&patch), state(&merged)))
        {
            merge_concurrent(&mut now, &base, &mut patch);
            assert_eq!(now, merged);
            let mut again = now.clone();
            merge_state(&mut again, patch);
            assert_eq!(again, merged, "the patch says what was merged");
        }
    }
}
