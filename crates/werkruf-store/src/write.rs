//! What a turn writes. One [`OpenTurn`] or [`TurnWrite`] is one transaction.

use jiff::Timestamp;
use werkruf_contract::{CallStatus, EventType, State, TurnStatus, Uuid};

use crate::approvals::NewApproval;
use crate::budgets::{NewReservation, OverBudget};
use crate::outbox::NewOutboxRow;
use crate::rows::{CallRow, InboxEntry, JsonText, Summary};
use crate::usage::NewUsage;

/// Proof of ownership. Every write of a turn carries it; when no lease row matches, another owner has the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub tenant_id: Uuid,
    /// The conversation, or the turn where it has no conversation.
    pub stream_id: Uuid,
    pub owner: String,
    pub epoch: i64,
}

/// The conversation of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationRef {
    /// Created by this turn.
    New { id: Uuid, channel: String, title: String },
    /// Must belong to `user_id`, or to any user where the caller may see all conversations.
    Existing { id: Uuid, any_user: bool },
    /// The turn has no conversation and has its own lease row.
    None,
}

/// Which operation started a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKind {
    Chat,
    Invoke,
    Retry,
}

impl TurnKind {
    /// The value in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Invoke => "invoke",
            Self::Retry => "retry",
        }
    }
}

/// A message to append; it gets its `seq` inside the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    pub id: Uuid,
    pub role: &'static str,
    pub content: String,
    pub tool_calls: Option<JsonText>,
    pub tool_call_id: Option<String>,
    pub tool_name: Option<String>,
    pub status: Option<&'static str>,
    pub metadata: Option<JsonText>,
    pub tokens: Option<i64>,
}

impl NewMessage {
    /// A message with text only.
    pub fn new(id: Uuid, role: &'static str, content: impl Into<String>) -> Self {
        Self {
            id,
            role,
            content: content.into(),
            tool_calls: None,
            tool_call_id: None,
            tool_name: None,
            status: None,
            metadata: None,
            tokens: None,
        }
    }

    /// The result of a call. `call_id` is the call's id in the history; `status` is `pending`, `success` or `error`.
    pub fn result(id: Uuid, call_id: impl Into<String>, tool: impl Into<String>, content: impl Into<String>, status: &'static str) -> Self {
        Self { tool_call_id: Some(call_id.into()), tool_name: Some(tool.into()), status: Some(status), ..Self::new(id, "tool", content) }
    }
}

/// An event to append; it gets its number inside the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub kind: EventType,
    pub data: JsonText,
}

/// Commit A.
#[derive(Debug, Clone)]
pub struct OpenTurn {
    pub tenant_id: Uuid,
    pub user_id: String,
    pub turn_id: Uuid,
    pub kind: TurnKind,
    pub conversation: ConversationRef,
    /// The assistant that the request names; empty: the one of the conversation.
    pub assistant: String,
    pub key_id: Option<Uuid>,
    /// Names the credential of the request.
    pub credential: String,
    /// The context of the calls, as the request asked for it. The rows of a direct call have it already.
    pub context: Option<JsonText>,
    pub message: Option<NewMessage>,
    pub inbox: Option<InboxEntry>,
    /// False when another turn of the conversation is still running: the message waits without a `seq`.
    pub start: bool,
    pub owner: String,
    /// Calls that start with the turn (invoke, retry): commits A and B in one.
    pub calls: Vec<CallRow>,
    /// For the calls that need an approval.
    pub approvals: Vec<NewApproval>,
    /// The request of a client of the OpenAI-compatible API.
    pub client: Option<JsonText>,
    /// Digest of that request, with the whole transcript in it.
    pub request_digest: Option<String>,
    /// Results of calls that the client ran.
    pub results: Vec<Replacement>,
    /// The content for results that the client was to send and did not send; `None` where the API has no client-side calls.
    pub unanswered: Option<String>,
    /// The turn that must still be the newest of the conversation, for a client that continues its transcript.
    pub expected_last_turn: Option<Uuid>,
    pub events: Vec<NewEvent>,
    /// What the channel says about the message: where answers go, and a call that needs no model.
    pub inbound: Option<JsonText>,
    /// What is sent about the start of the turn.
    pub outbox: Vec<NewOutboxRow>,
    /// The version of the tenant's budgets that the process knows; `None` for a turn that asks no model.
    pub budgets_version: Option<i64>,
    /// The worst case of the first model request. It is reserved where the turn starts at once, and only checked where the turn waits.
    pub reservation: Option<NewReservation>,
    pub now: Timestamp,
}

impl OpenTurn {
    /// A chat turn of a user that starts at once, with nothing in it yet.
    pub fn new(tenant_id: Uuid, user_id: &str, turn_id: Uuid, conversation: ConversationRef, owner: &str, now: Timestamp) -> Self {
        Self {
            tenant_id,
            user_id: user_id.to_owned(),
            turn_id,
            kind: TurnKind::Chat,
            conversation,
            assistant: String::new(),
            key_id: None,
            credential: String::new(),
            context: None,
            message: None,
            inbox: None,
            start: true,
            owner: owner.to_owned(),
            calls: Vec::new(),
            approvals: Vec::new(),
            client: None,
            request_digest: None,
            results: Vec::new(),
            unanswered: None,
            expected_last_turn: None,
            events: Vec::new(),
            inbound: None,
            outbox: Vec::new(),
            budgets_version: None,
            reservation: None,
            now,
        }
    }
}

/// The result of commit A.
#[derive(Debug, Clone, PartialEq)]
pub enum Opened {
    /// Stored. There is a fence when the turn may start at once. `assistant` is the one of the turn.
    Stored { fence: Option<Fence>, event_seqs: Vec<i64>, state: State, assistant: String },
    /// The inbox has this message already.
    Duplicate { turn_id: Uuid, same_body: bool },
    /// The inbox has this item already, and it started no turn.
    Recorded,
    /// This user has no such conversation.
    UnknownConversation,
    /// Another turn came after the one in `expected_last_turn`.
    Superseded,
    /// The outcome of the call to retry is unknown, and this call has retried it already.
    Retried { call_id: Uuid },
    /// A budget has no room for the first model request. Nothing is stored.
    OverBudget(OverBudget),
    /// The process does not know the budgets as they are now. Nothing is stored.
    StaleBudgets,
}

impl Opened {
    /// That the inbox has the item already.
    pub(crate) fn copy(turn_id: Option<Uuid>, same_body: bool) -> Self {
        turn_id.map_or(Self::Recorded, |turn_id| Self::Duplicate { turn_id, same_body })
    }
}

/// A queued call starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStart {
    pub id: Uuid,
    pub started_at: Timestamp,
}

/// An attempt failed and another follows: the row stays `running`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRetry {
    pub id: Uuid,
    /// The attempt that failed.
    pub attempt: u32,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub status: CallStatus,
    /// A `ToolErrorDetail`.
    pub error: JsonText,
    /// When the next attempt starts.
    pub next_started_at: Timestamp,
}

/// A call reaches its terminal status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    pub id: Uuid,
    pub status: CallStatus,
    pub response: Option<JsonText>,
    pub meta: Option<JsonText>,
    pub error: Option<String>,
    pub error_type: Option<String>,
    pub error_code: Option<String>,
    pub error_detail: Option<JsonText>,
    /// The decision on the caller's rights, which may be a newer one than that of the row; `None` keeps the row's.
    pub permission: Option<JsonText>,
    pub cache_hit: bool,
    pub finished_at: Timestamp,
}

impl CallEnd {
    /// An end without a result and without an error.
    pub fn new(id: Uuid, status: CallStatus, finished_at: Timestamp) -> Self {
        Self {
            id,
            status,
            response: None,
            meta: None,
            error: None,
            error_type: None,
            error_code: None,
            error_detail: None,
            permission: None,
            cache_hit: false,
            finished_at,
        }
    }
}

/// The provider's final data for a call that it runs itself. The row was written when the call started; fields that are `None` stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderCallUpdate {
    pub id: Uuid,
    pub tool_name: String,
    pub response_id: Option<String>,
    pub item_id: Option<String>,
    pub call_id: Option<String>,
    pub request: Option<JsonText>,
    pub raw_arguments: Option<String>,
}

/// The end of a turn that was canceled before it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnCancellation {
    /// The `TurnError` of the row.
    pub error: JsonText,
    pub error_code: String,
    /// The last event of the turn.
    pub event: NewEvent,
    /// What is sent about it.
    pub outbox: Vec<NewOutboxRow>,
    pub at: Timestamp,
}

/// A result that replaces its placeholder message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub tool_call_id: String,
    pub content: String,
    pub status: &'static str,
    /// `None` keeps the metadata of the placeholder.
    pub metadata: Option<JsonText>,
}

/// A change of the turn row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnChange {
    pub status: TurnStatus,
    pub step: u32,
    /// A `TurnError` and its code.
    pub error: Option<(JsonText, String)>,
    /// The final text.
    pub message: Option<String>,
    /// Digest of the transcript that the client has after the turn.
    pub transcript_digest: Option<String>,
}

/// Commits B, C and D. A `turn` change that ends the turn, or makes it wait for an approval, also releases the lease.
#[derive(Debug, Clone)]
pub struct TurnWrite {
    /// A write whose result was lost is sent again with the same id, and is written once.
    pub id: Uuid,
    pub fence: Fence,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Uuid,
    pub user_id: String,
    pub now: Timestamp,
    pub messages: Vec<NewMessage>,
    /// Results that have a placeholder in the history.
    pub replacements: Vec<Replacement>,
    pub calls: Vec<CallRow>,
    pub approvals: Vec<NewApproval>,
    /// Calls whose pending approval is withdrawn.
    pub withdrawn: Vec<Uuid>,
    pub starts: Vec<CallStart>,
    pub retries: Vec<CallRetry>,
    /// Applied before `ends`.
    pub provider_updates: Vec<ProviderCallUpdate>,
    pub ends: Vec<CallEnd>,
    /// Merged one after the other, in order.
    pub state_patches: Vec<State>,
    pub usage: Vec<NewUsage>,
    /// Messages of the conversation with their token counts, where these were computed now.
    pub counted: Vec<(Uuid, i64)>,
    /// Replaces the conversation's summary.
    pub summary: Option<Summary>,
    pub events: Vec<NewEvent>,
    pub turn: Option<TurnChange>,
    /// The step of an answer that broke off after the provider had run a call: the next step has this number plus one. The
    /// abandoned step does not count as a committed step.
    pub abandoned_step: Option<u32>,
    /// What is sent about this commit, in order.
    pub outbox: Vec<NewOutboxRow>,
    /// Ends every reservation of the turn that the usage rows do not end.
    pub release_reservations: bool,
    /// The worst case of the next model request, after the usage rows are counted. Refused, it leaves the rest of the write as it is.
    pub reserve: Option<NewReservation>,
}

impl TurnWrite {
    /// Whether the turn ends or waits for a person.
    pub(crate) fn releases_lease(&self) -> bool {
        self.turn.as_ref().is_some_and(|change| change.status.is_terminal() || change.status == TurnStatus::AwaitingApproval)
    }

    /// An empty write.
    pub const fn new(id: Uuid, fence: Fence, conversation_id: Option<Uuid>, turn_id: Uuid, user_id: String, now: Timestamp) -> Self {
        Self {
            id,
            fence,
            conversation_id,
            turn_id,
            user_id,
            now,
            messages: Vec::new(),
            replacements: Vec::new(),
            calls: Vec::new(),
            approvals: Vec::new(),
            withdrawn: Vec::new(),
            starts: Vec::new(),
            retries: Vec::new(),
            provider_updates: Vec::new(),
            ends: Vec::new(),
            state_patches: Vec::new(),
            usage: Vec::new(),
            counted: Vec::new(),
            summary: None,
            events: Vec::new(),
            turn: None,
            abandoned_step: None,
            outbox: Vec::new(),
            release_reservations: false,
            reserve: None,
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// One per event, in order.
    pub event_seqs: Vec<i64>,
    /// The session state after the patches; `None` when there were none.
    pub state: Option<State>,
    /// The turn has a cancel request.
    pub cancel_requested: bool,
    /// The budget that had no room for `reserve`.
    pub over_budget: Option<OverBudget>,
}
