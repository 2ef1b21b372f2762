//! What a door hands in, and how it is refused.

use std::sync::Arc;

use serde_json::Value;
use werkruf_contract::{Principal, ToolContext, ToolOutput, Uuid};
use werkruf_store::StoreError;

use crate::brought::{ClientRequest, ClientResult};
use crate::feed::Subscription;

/// Who stands at the door, as the channel authenticated them.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Arc<Principal>,
    /// The API key used, for usage and limits.
    pub key_id: Option<Uuid>,
    /// Scope `admin`: sees everybody's conversations and debug events.
    pub admin: bool,
}

/// A client's key for "this is the same request".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    /// Digest of the body.
    pub fingerprint: String,
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
    /// Asked for and allowed.
    pub debug: bool,
    pub idempotency: Option<Idempotency>,
    pub trace_id: Option<String>,
    /// Pictures and files of the message, as content parts of Chat Completions.
    pub parts: Vec<Value>,
    /// What a client of the OpenAI doors brings along; `message` may be empty where `results` are not.
    pub brought: Option<Arc<ClientRequest>>,
    /// Results of calls that the client ran. Calls it leaves out are canceled.
    pub results: Vec<ClientResult>,
    /// The newest turn of the conversation as the client knows it; where it has gone on since, nothing is begun.
    pub after: Option<Uuid>,
}

/// A stored message: the turn exists and will reach an end.
#[derive(Debug)]
pub struct AcceptedTurn {
    pub conversation_id: Uuid,
    pub turn_id: Uuid,
    pub created: bool,
    /// Everything the turn says, `init` first. Ends after `final` or `error`, or early when the reader is too slow.
    pub events: Subscription,
}

/// One tool, called directly.
#[derive(Debug, Clone)]
pub struct Invoke {
    pub caller: Caller,
    pub tool: String,
    pub input: Value,
    pub conversation_id: Option<Uuid>,
    /// As the headers say; `invocation_id`, `now_iso` and `tenant_id` are set by the runtime.
    pub context: ToolContext,
    pub idempotency: Option<Idempotency>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct InvokeResult {
    pub job_id: Uuid,
    pub outcome: InvokeOutcome,
}

/// How a direct call stands when its caller hears of it.
#[derive(Debug, Clone)]
pub enum InvokeOutcome {
    Done(Box<ToolOutput>),
    /// A person must decide first.
    Awaiting {
        approval_id: Uuid,
    },
}

/// Why nothing was begun. Nothing is stored, except that a `Duplicate` was stored before.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{message}")]
    Invalid { code: &'static str, message: String },
    #[error("there is no such conversation")]
    UnknownConversation,
    #[error("the conversation has gone on")]
    Superseded,
    #[error("there is no tool named {0}")]
    UnknownTool(String),
    #[error("there is no such call")]
    UnknownCall,
    #[error("there is no such approval")]
    UnknownApproval,
    #[error("this is for {roles} to decide")]
    NotTheApprover { roles: String },
    #[error("this request was made before as turn {turn_id}")]
    Duplicate { turn_id: Uuid, same_body: bool },
    #[error("{message}")]
    Conflict { code: &'static str, message: String },
    #[error("too many turns; try again in {retry_after_ms} ms")]
    TooMany { retry_after_ms: u64 },
    #[error("the server is full or shutting down; try again in {retry_after_ms} ms")]
    Busy { retry_after_ms: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}
