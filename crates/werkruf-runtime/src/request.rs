//! What channels and APIs hand to the runtime, and how it refuses a request.

use std::any::Any;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;
use werkruf_contract::{Principal, Progress, ToolContext, ToolOutput, Uuid};
use werkruf_store::{InboxEntry, StoreError};

use crate::budgets::BudgetRefusal;
use crate::channel::Inbound;
use crate::client_request::{ClientRequest, ClientResult};
use crate::stream::{ClientLeave, Subscription};

/// Who makes a request, as the channel authenticated them.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Arc<Principal>,
    /// The API key used, for usage and limits.
    pub key_id: Option<Uuid>,
    /// Names the credential of the request: who asks with one cannot approve with the same one.
    pub credential: String,
    /// The person who retries a call of somebody else. They have asked for it too.
    pub retried_by: Option<String>,
    /// What the credential pins.
    pub pins: Pins,
    /// Scope `admin`: sees everybody's conversations and debug events.
    pub admin: bool,
}

/// Limits that a credential puts on every request it makes. A request may narrow them, never widen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    pub safety_mode: Option<String>,
    pub collection: Option<String>,
}

impl Pins {
    /// Applies the limits to what a request asks for.
    pub(crate) fn apply(&self, context: &mut ToolContext) -> Result<(), Refusal> {
        if let Some(profile) = &self.safety_mode {
            context.pin_safety(profile);
        }
        let Some(own) = &self.collection else { return Ok(()) };
        let named = context.collection_id.get_or_insert_with(|| own.clone());
        if named == own {
            return Ok(());
        }
        let message = format!("This key is limited to the collection {own}; leave X-Collection-Id out.");
        Err(Refusal::Invalid { code: "invalid_context", message })
    }
}

/// A client's idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// What the request calls. The same key on another route is another request.
    pub route: String,
    pub key: String,
    /// Digest of the body.
    pub fingerprint: String,
}

impl Idempotency {
    /// The route of direct calls of a tool, over whichever API.
    pub fn route_of_tool(tool: &str) -> String {
        format!("invoke/{tool}")
    }
}

/// What a channel with addresses says about a message, and the inbox entry by which a repeated delivery is recognised.
#[derive(Debug, Clone)]
pub struct ChannelMessage {
    pub inbound: Inbound,
    pub inbox: InboxEntry,
}

/// A message for an assistant.
#[derive(Debug, Clone)]
pub struct InboundMessage {
    pub caller: Caller,
    pub conversation_id: Option<Uuid>,
    pub message: String,
    pub assistant: Option<String>,
    /// `web`, `openai`, `whatsapp`.
    pub channel: String,
    pub locale: Option<String>,
    /// Debug events were requested, and the caller may see them.
    pub debug: bool,
    pub idempotency: Option<Idempotency>,
    /// What a channel with addresses says about the message; `None` for requests over HTTP. Boxed: few messages have one.
    pub inbound: Option<Box<ChannelMessage>>,
    /// From the request's headers. The runtime sets `tenant_id`, `invocation_id` and `now_iso`, and what is empty: the trace id, the run, the
    /// locale.
    pub context: ToolContext,
    /// Pictures and files of the message, as content parts of Chat Completions.
    pub parts: Vec<Value>,
    /// The rest of an OpenAI client's request; `message` may be empty where `results` are not.
    pub client: Option<Arc<ClientRequest>>,
    /// Results of calls that the client ran. Open client calls without a result are canceled.
    pub results: Vec<ClientResult>,
    /// The newest turn of the conversation that the client knows. A conversation with a newer turn refuses the message.
    pub after: Option<Uuid>,
    /// Kept until the turn has ended, such as the memory that the request reserved for what it holds.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

/// A stored message: its turn exists and will end.
#[derive(Debug)]
pub struct AcceptedTurn {
    pub conversation_id: Uuid,
    pub turn_id: Uuid,
    pub created: bool,
    /// All events of the turn, `init` first. Ends after `final` or `error`, or early when the subscriber does not read.
    pub events: Subscription,
    /// Stops the turn, for channels whose clients stop it when they leave.
    pub leave: ClientLeave,
}

/// A direct call of one tool.
#[derive(Debug, Clone)]
pub struct Invoke {
    pub caller: Caller,
    pub tool: String,
    pub input: Value,
    pub conversation_id: Option<Uuid>,
    /// From the request's headers; the runtime sets `invocation_id`, `now_iso` and `tenant_id`.
    pub context: ToolContext,
    pub idempotency: Option<Idempotency>,
    /// Receives how far the call is.
    pub observer: Option<Arc<dyn Progress>>,
}

/// A direct call that is stored and runs.
#[derive(Debug)]
pub struct StartedCall {
    pub job_id: Uuid,
    pub turn_id: Uuid,
    pub(crate) outcome: oneshot::Receiver<InvokeOutcome>,
}

impl StartedCall {
    /// Waits for the outcome. Whoever stops waiting does not cancel the call.
    pub async fn outcome(self) -> Result<InvokeOutcome, Refusal> {
        self.outcome.await.map_err(|_| Refusal::Store(StoreError::Unavailable("the call could not be recorded".to_owned())))
    }
}

/// A direct call and its outcome.
#[derive(Debug, Clone)]
pub struct InvokeResult {
    pub job_id: Uuid,
    pub outcome: InvokeOutcome,
}

/// How a direct call stands when its caller gets an answer.
#[derive(Debug, Clone)]
pub enum InvokeOutcome {
    Done(Box<ToolOutput>),
    /// An approver must decide first.
    Awaiting {
        approval_id: Uuid,
    },
}

/// Why a request was refused. Nothing is stored, except that a `Duplicate` was stored before.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{message}")]
    Invalid { code: &'static str, message: String },
    #[error("there is no such conversation")]
    UnknownConversation,
    #[error("the conversation has a newer turn")]
    Superseded,
    #[error("there is no tool named {0}")]
    UnknownTool(String),
    #[error("there is no such call")]
    UnknownCall,
    #[error("there is no such approval")]
    UnknownApproval,
    #[error("this is for {roles} to decide")]
    NotTheApprover { roles: String },
    #[error("whoever asked cannot approve; another person with another key decides")]
    FourEyes,
    #[error("this request was made before as turn {turn_id}")]
    Duplicate { turn_id: Uuid, same_body: bool },
    #[error("this message was received before and started no turn")]
    Recorded,
    #[error("{message}")]
    Conflict { code: &'static str, message: String },
    #[error("too many turns; try again in {retry_after_ms} ms")]
    TooMany { retry_after_ms: u64 },
    #[error("a budget has no room for the request")]
    OverBudget(Box<BudgetRefusal>),
    #[error("the server is full or shutting down; try again in {retry_after_ms} ms")]
    Busy { retry_after_ms: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(pins: &Pins, mut context: ToolContext) -> Option<ToolContext> {
        pins.apply(&mut context).ok().map(|()| context)
    }

    #[test]
    fn what_a_credential_pins_is_added_and_never_replaced() {
        let pins = Pins { safety_mode: Some("strict".to_owned()), collection: Some("hr".to_owned()) };
        let alone = applied(&pins, ToolContext::default()).unwrap();
        assert_eq!((alone.safety_mode.as_deref(), alone.collection_id.as_deref()), (Some("strict"), Some("hr")));
        let named = ToolContext { safety_mode: Some("lax".to_owned()), collection_id: Some("hr".to_owned()), ..ToolContext::default() };
        let both = applied(&pins, named).unwrap();
        assert_eq!(both.safety_profiles().collect::<Vec<_>>(), ["lax", "strict"]);
        assert_eq!(applied(&pins, both.clone()), Some(both), "twice is once");
        let foreign = ToolContext { collection_id: Some("travel".to_owned()), ..ToolContext::default() };
        assert_eq!(applied(&pins, foreign.clone()), None);
        assert_eq!(applied(&Pins::default(), foreign.clone()), Some(foreign));
    }
}
