//! The tool trait. A tool is one file: an args type, which is also the schema, a spec, and `call`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::Effect;
use crate::cancel::{Cancel, Deadline};
use crate::context::ToolContext;
use crate::error::Failure;
use crate::models::Models;
use crate::principal::{Need, Principal, Scope, Tenant};
use crate::progress::Progress;
use crate::results::Results;
use crate::texts::{TextSet, Texts};

/// A boxed future, for traits that are used as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Session state of a conversation.
pub type State = Map<String, Value>;

/// The field of the session state with a question that no tool could answer: `{"query": …}`. A plain "yes" passes it on to a general model.
pub const PENDING_QUESTION: &str = "pending_gpt_query";

/// Merges a patch shallowly; null deletes a field.
pub fn merge_state(state: &mut State, patch: State) {
    for (field, value) in patch {
        if value.is_null() {
            state.remove(&field);
        } else {
            state.insert(field, value);
        }
    }
}

/// Merges the patch of a call that started with the state `base`, while parallel calls may have changed the state since. Values that
/// the patch appends to a list of `base` are appended to the current list. `patch` is updated to what was merged.
pub fn merge_concurrent(now: &mut State, base: &State, patch: &mut State) {
    for (field, value) in patch.iter_mut() {
        let (Value::Array(patched), Some(Value::Array(current))) = (&mut *value, now.get(field)) else { continue };
        let original = base.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if current.as_slice() != original && patched.starts_with(original) {
            let added = patched.split_off(original.len());
            *patched = current.iter().cloned().chain(added).collect();
        }
    }
    merge_state(now, patch.clone());
}

/// What a call about another user needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedForOthers {
    pub need: Need,
    /// The argument with the number of the other user.
    pub argument: &'static str,
}

/// The properties of a tool that the runtime uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    pub name: Cow<'static, str>,
    pub description: Cow<'static, str>,
    pub effect: Effect,
    /// The permission that the caller needs; `None` if no permission is needed.
    pub permission: Option<Need>,
    /// The permission whose scope decides about the data of other users, if it is not `permission`.
    pub permission_for_others: Option<NeedForOthers>,
    /// The longest duration of one attempt; `None`: `limits.tool_ms`.
    pub timeout: Option<Duration>,
    /// The maximum number of attempts, including the first. A `once` tool always has one attempt.
    pub attempts: u32,
    /// How long a result may be reused; `None` means inside the turn only. Zero means never: each call of a `read` tool runs, for a tool
    /// that is polled.
    pub reuse: Option<Duration>,
    /// How often one turn may make the very same call.
    pub repeat_limit: u32,
    /// The roles of which one must approve each call; empty if no approval is needed.
    pub approval: Vec<Cow<'static, str>>,
    /// Must change when stored results must no longer be reused.
    pub version: Cow<'static, str>,
    /// The tool's message is the final answer; no further model request is made.
    pub answers_directly: bool,
    /// The maximum number of concurrent calls of this tool over all conversations; zero means no limit for this tool.
    pub concurrency: usize,
    /// A larger response fails the call with `response_too_large`.
    pub max_response_bytes: usize,
    /// The slugs or ids of the tenants that have this tool; empty: every tenant has it.
    pub tenants: Vec<String>,
    /// The tool of which this one is another form. Programs may call this form directly. Models and lists have only the named tool, and its
    /// configuration counts for both.
    pub direct_form_of: Option<Cow<'static, str>>,
    /// Whether what the tool returns may be written by strangers. After such a result, calls with consequences need an approval.
    pub trust: Trust,
    /// The arguments for which an assistant may set defaults. The tool reads them from `ToolContext::defaults`.
    pub defaults: &'static [&'static str],
    /// The schema says which values a model should choose, and the tool itself judges those that it does choose: some are corrected, others
    /// refused in the language of the user.
    pub judges_values: bool,
    /// Whether the tool's arguments leave the company, so that a text from a stranger could make the model send data away with it.
    pub external: bool,
    /// What one attempt of a call costs, in billionths of a US dollar; `None` for a tool without a price.
    pub price_nano_usd: Option<i64>,
    /// A message and the call that it stands for, as a line of the system prompt; empty if there is none.
    pub example: Cow<'static, str>,
    /// Whether the tool reads on in large results. Without being named, a model is given it only after it got the beginning of one.
    pub reads_results: bool,
    /// The texts of the tool's module. `NAME-ability` in them says what the offline planner can do with the tool.
    pub texts: Option<&'static TextSet>,
}

/// Whose words a tool or a collection returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Those of the operator's own systems.
    #[default]
    Trusted,
    /// Those of anybody, such as a web page or a mail.
    Untrusted,
}

impl Trust {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Trusted, Self::Untrusted].into_iter().find(|trust| trust.name() == name)
    }
}

impl ToolSpec {
    /// A spec with the defaults: the configured timeout, three attempts, no permission needed.
    pub fn new(name: impl Into<Cow<'static, str>>, description: impl Into<Cow<'static, str>>, effect: Effect) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            effect,
            permission: None,
            permission_for_others: None,
            timeout: None,
            attempts: 3,
            reuse: None,
            repeat_limit: 3,
            approval: Vec::new(),
            version: Cow::Borrowed("1"),
            answers_directly: false,
            concurrency: 0,
            max_response_bytes: 1024 * 1024,
            tenants: Vec::new(),
            direct_form_of: None,
            trust: Trust::Trusted,
            defaults: &[],
            judges_values: false,
            external: false,
            price_nano_usd: None,
            example: Cow::Borrowed(""),
            reads_results: false,
            texts: None,
        }
    }

    /// Whether a name in the configuration means this tool.
    pub fn goes_by(&self, name: &str) -> bool {
        self.name == name || self.direct_form_of.as_deref() == Some(name)
    }

    /// Whether this tenant has the tool.
    pub fn serves(&self, tenant: Tenant<'_>) -> bool {
        self.tenants.is_empty() || self.tenants.iter().any(|name| name == tenant.slug || Uuid::parse_str(name) == Ok(tenant.id))
    }

    /// The longest duration of one attempt, where `configured` is the limit for tools without one of their own.
    pub fn limit(&self, configured: Duration) -> Duration {
        self.timeout.unwrap_or(configured)
    }

    /// How often one call of this tool may be attempted.
    pub fn allowed_attempts(&self) -> u32 {
        match self.effect {
            Effect::Once => 1,
            Effect::Read | Effect::Idempotent => self.attempts.max(1),
        }
    }
}

/// What a tool receives besides its arguments. The model chooses none of it.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub context: Arc<ToolContext>,
    pub principal: Arc<Principal>,
    /// Whose rows the call may read and write; the tool must apply it in its queries.
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
    /// The untrusted results that the model had read when it made the call, as JSON text: `[{tool, job_id}]`; `None` without any.
    pub untrusted: Option<Arc<str>>,
    /// The models that the call may use, in the name of its user.
    pub models: Arc<dyn Models>,
    /// The results of earlier calls of the conversation.
    pub results: Arc<dyn Results>,
    /// Where a call that takes long says how far it is.
    pub progress: Arc<dyn Progress>,
}

impl Invocation {
    /// The texts in the language of the conversation, else in the caller's language.
    pub fn texts(&self) -> Texts {
        Texts::of(self.context.locale.as_deref().unwrap_or(&self.principal.locale))
    }

    /// The caller's time zone; UTC if the time zone database does not contain it.
    pub fn time_zone(&self) -> TimeZone {
        TimeZone::get(&self.principal.time_zone).unwrap_or(TimeZone::UTC)
    }
}

/// The result of a successful tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<D = Value> {
    pub data: D,
    /// Text for the user; the whole answer if the tool answers directly.
    pub message: Option<String>,
    /// Merged shallowly into the session state; null deletes a field.
    pub state_patch: Option<State>,
    pub source_counts: Option<BTreeMap<String, u64>>,
    pub routing: Option<Map<String, Value>>,
    pub token_usage: Option<BTreeMap<String, i64>>,
    /// This result may be written by strangers, although the tool is trusted: a web search, an untrusted collection.
    pub untrusted: bool,
}

impl<D> Reply<D> {
    /// A reply with data only.
    pub const fn new(data: D) -> Self {
        Self { data, message: None, state_patch: None, source_counts: None, routing: None, token_usage: None, untrusted: false }
    }

    /// Converts the data.
    pub fn map<E>(self, f: impl FnOnce(D) -> E) -> Reply<E> {
        Reply {
            data: f(self.data),
            message: self.message,
            state_patch: self.state_patch,
            source_counts: self.source_counts,
            routing: self.routing,
            token_usage: self.token_usage,
            untrusted: self.untrusted,
        }
    }
}

/// A tool. Implement this trait to add one.
pub trait Tool: Send + Sync + 'static {
    /// The arguments, which the model chooses; their schema is derived from this type. Optional fields are `Option`.
    type Args: DeserializeOwned + Serialize + JsonSchema + Send;
    /// The type of the reply's data; its schema is derived from this type too.
    type Output: Serialize + JsonSchema + Send;

    /// Name, effect, limits.
    fn spec(&self) -> ToolSpec;

    /// Runs one attempt of a call.
    fn call(&self, args: Self::Args, invocation: Invocation) -> impl Future<Output = Result<Reply<Self::Output>, Failure>> + Send;

    /// The arguments with which the offline planner should call this tool for a user message; `None` if the message is not for this
    /// tool. The planner tries every tool, so it needs no list of tool names.
    fn propose(&self, _text: &str, _locale: &str, _today: Date) -> Option<Self::Args> {
        None
    }

    /// The arguments in a message that continues this tool's last result, such as the answer to its question; for the offline planner.
    fn follow_up(&self, _result: &Value, _text: &str, _locale: &str, _today: Date) -> Option<Self::Args> {
        None
    }

    /// The arguments for a message that no tool has a call for; for the offline planner.
    fn last_resort(&self, _text: &str) -> Option<Self::Args> {
        None
    }

    /// The arguments of the call that this tool offered in the session state, if the message accepts the offer.
    fn claims(&self, _state: &State, _text: &str) -> Option<Self::Args> {
        None
    }

    /// The session state fields that hold an offer of this tool. Any message that does not accept the offer deletes them.
    fn offers(&self) -> &'static [&'static str] {
        &[]
    }

    /// The session state fields that belong to this tool. Of all tools only their owners may change them.
    fn owns_state(&self) -> &'static [&'static str] {
        self.offers()
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
    fn values_appended_by_parallel_calls_are_all_kept() {
        let base = state(&json!({"memory": ["a"], "city": "Ulm", "list": [1, 2]}));
        let mut now = base.clone();
        for (mut patch, merged) in [
            (json!({"memory": ["a", "b"], "city": "Bonn"}), json!({"memory": ["a", "b"], "city": "Bonn", "list": [1, 2]})),
            (json!({"memory": ["a", "c"], "new": [1]}), json!({"memory": ["a", "b", "c"], "city": "Bonn", "list": [1, 2], "new": [1]})),
            // For a list that is replaced and a field that is deleted, the last patch wins.
            (json!({"memory": ["d"], "city": null, "new": [2]}), json!({"memory": ["d"], "list": [1, 2], "new": [1, 2]})),
        ]
        .map(|(patch, merged)| (state(&patch), state(&merged)))
        {
            merge_concurrent(&mut now, &base, &mut patch);
            assert_eq!(now, merged);
            let mut again = now.clone();
            merge_state(&mut again, patch);
            assert_eq!(again, merged, "the patch contains what was merged");
        }
    }
}
