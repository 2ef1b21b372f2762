//! Rows as they are read from the database.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{CallKind, CallStatus, Effect, ErrorCode, EventType, Runner, State, TurnStatus, Uuid};

/// JSON as text: serialized once, then inserted into responses as it is.
pub type JsonText = String;

/// A row of `tenants`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRow {
    pub id: Uuid,
    pub slug: String,
}

/// A row of `users`, as far as identity goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    pub id: i64,
    pub first_name: String,
    pub last_name: String,
    /// The roles in the user's latest token, even where that token has expired.
    pub token_roles: Option<TokenRoles>,
}

/// Roles as a token names them. Names for which the tenant has no role are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRoles {
    pub names: Vec<String>,
    /// The user has these roles only, even where the tenant has none of them. Otherwise the stored roles count in that case.
    pub only: bool,
    /// When the token expires, and its roles with it. Stored in a column of its own.
    #[serde(skip)]
    pub until: Timestamp,
}

impl TokenRoles {
    /// Whether storing `other` would change nothing: these are the same roles, for at least as long.
    pub fn covers(&self, other: &Self) -> bool {
        (&self.names, self.only) == (&other.names, other.only) && self.until >= other.until
    }
}

/// A row of `conversations`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationRow {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub user_id: String,
    pub channel: String,
    pub assistant: String,
    pub title: String,
    pub state: State,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A row of `messages` (seed 001).
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    pub id: Uuid,
    pub conversation_id: Uuid,
    pub created_at: Timestamp,
    pub content: String,
    /// user, assistant, tool or system.
    pub role: String,
    /// `[{id, name, args}]`; args is a JSON string where the model's arguments were no JSON.
    pub tool_calls: Option<JsonText>,
    pub tool_call_id: Option<String>,
    pub tool_name: Option<String>,
    /// pending, success or error.
    pub status: Option<String>,
    pub metadata: JsonText,
    /// `None` while the message waits for its turn.
    pub seq: Option<i64>,
    pub turn_id: Option<Uuid>,
    pub tokens: Option<i64>,
}

/// The model's summary of a conversation up to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The `seq` of the last message in the summary; below 1 for messages that only the client request has.
    pub until: i64,
    pub text: String,
    /// The untrusted results among what it covers: a JSON array; `None` without any.
    pub untrusted: Option<JsonText>,
}

/// A row of `turns`.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRow {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub conversation_id: Option<Uuid>,
    pub user_id: String,
    pub kind: String,
    pub assistant: String,
    pub status: TurnStatus,
    pub step: u32,
    /// How often the turn was resumed after a crash or an expired lease.
    pub takeovers: u32,
    /// The number of takeovers since the last committed step.
    pub stalled: u32,
    pub key_id: Option<Uuid>,
    pub cancel_requested: bool,
    /// A `TurnError`.
    pub error: Option<JsonText>,
    pub error_code: Option<String>,
    /// Final text, once there is one.
    pub message: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// Names the credential that the turn was started with.
    pub credential: String,
    /// The context of the turn's calls, as the request asked for it; `None` for direct calls, whose rows have it.
    pub context: Option<JsonText>,
    /// What the channel said about the message; `None` for requests over HTTP.
    pub inbound: Option<JsonText>,
}

/// A row of `tool_calls`, with all columns.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRow {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Uuid,
    pub step: u32,
    pub output_index: u32,
    pub response_id: Option<String>,
    pub kind: CallKind,
    pub runner: Runner,
    pub tool_name: String,
    pub call_id: Option<String>,
    pub item_id: Option<String>,
    pub status: CallStatus,
    /// The arguments as run.
    pub request: Option<JsonText>,
    /// The arguments as the model sent them.
    pub raw_arguments: Option<String>,
    /// `[{path, from, to, rule}]`
    pub repairs: Option<JsonText>,
    /// The tool's `data`.
    pub response: Option<JsonText>,
    pub error: Option<String>,
    pub error_type: Option<String>,
    pub error_code: Option<String>,
    /// A `ToolErrorDetail`, cause included.
    pub error_detail: Option<JsonText>,
    pub effect: Effect,
    /// From 1 at the first send; 0 when never sent.
    pub attempt: u32,
    pub cache_hit: bool,
    pub dedupe_key: Option<String>,
    pub dedupe_of: Option<Uuid>,
    pub retry_of: Option<Uuid>,
    pub idempotency_key: Option<String>,
    /// The permission decision of the call pipeline: `{needs, granted, role, permission, scope}`.
    pub permission: Option<JsonText>,
    /// The `ToolContext` without `auth`.
    pub context: JsonText,
    pub trace_id: Option<String>,
    pub run_id: Option<String>,
    pub ingestion_run_id: Option<String>,
    pub workflow_id: Option<String>,
    pub case_id: Option<String>,
    /// The reply's measurements beside `data`: source_counts, routing, token_usage, message.
    pub meta: Option<JsonText>,
    /// The untrusted results in the history that the model had when it made the call: `[{tool, job_id}]`.
    pub taint: Option<JsonText>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// What every new call has; [`CallRow::queued`] fills the other columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCall {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Uuid,
    pub step: u32,
    pub output_index: u32,
    pub tool_name: String,
    pub now: Timestamp,
}

impl CallRow {
    /// A queued function call for this server, never sent. Its effect is `read` until the tool is known.
    pub fn queued(call: NewCall) -> Self {
        Self {
            id: call.id,
            tenant_id: call.tenant_id,
            conversation_id: call.conversation_id,
            turn_id: call.turn_id,
            step: call.step,
            output_index: call.output_index,
            response_id: None,
            kind: CallKind::Function,
            runner: Runner::Server,
            tool_name: call.tool_name,
            call_id: None,
            item_id: None,
            status: CallStatus::Queued,
            request: None,
            raw_arguments: None,
            repairs: None,
            response: None,
            error: None,
            error_type: None,
            error_code: None,
            error_detail: None,
            effect: Effect::Read,
            attempt: 0,
            cache_hit: false,
            dedupe_key: None,
            dedupe_of: None,
            retry_of: None,
            idempotency_key: None,
            permission: None,
            context: "{}".to_owned(),
            trace_id: None,
            run_id: None,
            ingestion_run_id: None,
            workflow_id: None,
            case_id: None,
            meta: None,
            taint: None,
            created_at: call.now,
            updated_at: call.now,
            started_at: None,
            finished_at: None,
        }
    }

    /// Whether the call failed with this code of the server.
    pub fn has_code(&self, code: ErrorCode) -> bool {
        self.error_code.as_deref().is_some_and(|own| code.is(own))
    }

    /// The duration of the call, from the times in its row.
    pub fn took_ms(&self) -> u64 {
        let start = self.started_at.unwrap_or(self.created_at);
        let end = self.finished_at.unwrap_or(start);
        u64::try_from(end.as_millisecond() - start.as_millisecond()).unwrap_or(0)
    }

    /// The stored response as a value; null where there is none.
    pub fn response_value(&self) -> Value {
        self.response.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
    }
}

/// An attempt before the one in the call row.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRow {
    pub attempt: u32,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub status: CallStatus,
    /// A `ToolErrorDetail`.
    pub error: JsonText,
}

/// A finished call with the same dedupe key.
#[derive(Debug, Clone, PartialEq)]
pub struct Reusable {
    pub call: CallRow,
    /// A finished `idempotent` or `once` call of the same conversation came after it.
    pub stale: bool,
    /// The outcome of the call is unknown, and the user has sent a message since this was known, which allows repeating the call.
    pub message_since: bool,
}

/// Which conversations to list, and in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversationFilter {
    /// Only those of this user.
    pub user_id: Option<String>,
    /// By the time of the last message or state, the last used conversation first. The order of the page does not count.
    pub last_used_first: bool,
}

impl ConversationFilter {
    /// The conversations of this user.
    pub fn of(user_id: impl Into<String>) -> Self {
        Self { user_id: Some(user_id.into()), ..Self::default() }
    }
}

/// Which calls to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFilter {
    pub conversation_id: Option<Uuid>,
    pub turn_id: Option<Uuid>,
    /// Only calls of conversations and turns of this user.
    pub user_id: Option<String>,
    pub tool: Option<String>,
    pub status: Option<CallStatus>,
}

/// A row of `events`.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    pub seq: i64,
    pub kind: EventType,
    pub turn_id: Option<Uuid>,
    pub data: JsonText,
    pub created_at: Timestamp,
}

/// Identifies an inbound message, so that a second copy of it is recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    pub channel: String,
    /// Route and principal, or the receiving number.
    pub account: String,
    pub external_id: String,
    /// Digest of the body: another body under the same key is refused.
    pub fingerprint: String,
    pub expires_at: Timestamp,
}

/// So many of the newest ids of a tenant are compared by their end: no index helps there.
pub(crate) const NEWEST_BY_END: u32 = 10_000;

/// What an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdOf {
    Call,
    Conversation,
    Approval,
    Outbox,
}

/// How much there is and how much waits, over all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RowCounts {
    pub tenants: i64,
    pub users: i64,
    pub api_keys: i64,
    pub conversations: i64,
    /// Turns that have not ended, waiting ones included.
    pub open_turns: i64,
    pub pending_approvals: i64,
    pub recent_calls: i64,
    /// Recent calls that failed or timed out.
    pub recent_failed_calls: i64,
}

impl IdOf {
    pub(crate) const fn table(self) -> &'static str {
        match self {
            Self::Call => "tool_calls",
            Self::Conversation => "conversations",
            Self::Approval => "approvals",
            Self::Outbox => "outbox",
        }
    }
}
