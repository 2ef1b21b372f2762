//! What a turn writes. One value is one transaction.

use jiff::Timestamp;
use werkruf_contract::{CallStatus, EventType, State, TurnStatus, Uuid};

use crate::approvals::NewApproval;
use crate::rows::{CallRow, JsonText, Summary};

/// Proof of ownership: every write of a turn carries it, and zero rows means somebody else owns the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub tenant_id: Uuid,
    /// The conversation, or the turn where there is none.
    pub stream_id: Uuid,
    pub owner: String,
    pub epoch: i64,
}

/// Where a turn belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationRef {
    /// Made by this turn.
    New { id: Uuid, channel: String, title: String },
    /// Must belong to `user_id`, or to anybody where the caller may see all.
    Existing { id: Uuid, any_user: bool },
    /// A turn by itself, with its own lease row.
    None,
}

/// Which door a turn came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKind {
    Chat,
    Invoke,
    Retry,
}

impl TurnKind {
    /// The spelling in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Invoke => "invoke",
            Self::Retry => "retry",
        }
    }
}

/// What makes a second copy of the same inbound message recognisable.
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

/// A message to append; it gets its place inside the transaction.
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
    pub assistant: String,
    pub key_id: Option<Uuid>,
    pub message: Option<NewMessage>,
    pub inbox: Option<InboxEntry>,
    /// False when another turn of the conversation is still running: the message waits without a place.
    pub start: bool,
    pub owner: String,
    /// Calls that begin with the turn (invoke, retry): A and B in one.
    pub calls: Vec<CallRow>,
    /// For those of the calls that wait for a person's word.
    pub approvals: Vec<NewApproval>,
    /// What a client of the OpenAI doors brought along.
    pub client: Option<JsonText>,
    /// Everything that client had sent and seen with it, as a digest.
    pub request_digest: Option<String>,
    /// Results of calls that the client ran.
    pub results: Vec<Replacement>,
    /// What stands for results the client owes and does not send; `None` where the door knows no such calls.
    pub unanswered: Option<String>,
    /// The newest turn the conversation must still have, for a client that goes on from what it has seen.
    pub after: Option<Uuid>,
    pub events: Vec<NewEvent>,
    pub now: Timestamp,
}

/// What came of commit A.
#[derive(Debug, Clone, PartialEq)]
pub enum Opened {
    /// Stored. The fence is there when the turn may start at once.
    Stored { fence: Option<Fence>, event_seqs: Vec<i64>, state: State, assistant: String },
    /// The inbox knows this message already.
    Duplicate { turn_id: Uuid, same_body: bool },
    /// No such conversation for this person.
    UnknownConversation,
    /// Another turn came after the one the client knows.
    Superseded,
}

/// A queued call begins.
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
    /// When the next attempt begins.
    pub next_started_at: Timestamp,
}

/// A call ends, for good.
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
    pub cache_hit: bool,
    pub finished_at: Timestamp,
}

/// What a provider says in the end of a call it runs itself: the row was written when it began. What is left out stays.
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

/// The real result takes the place of a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub tool_call_id: String,
    pub content: String,
    pub status: &'static str,
}

/// One provider request, priced or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUsage {
    pub id: Uuid,
    pub call_id: Option<Uuid>,
    pub key_id: Option<Uuid>,
    pub provider: String,
    pub model: String,
    pub operation: &'static str,
    pub tokens_prompt: i64,
    pub tokens_cached: i64,
    pub tokens_completion: i64,
    pub tokens_reasoning: i64,
    pub tokens_total: i64,
    pub estimated: bool,
    pub cost_nano_usd: Option<i64>,
}

/// The turn row moves on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnChange {
    pub status: TurnStatus,
    pub step: u32,
    /// A `TurnError` and its code.
    pub error: Option<(JsonText, String)>,
    /// The final text.
    pub message: Option<String>,
    /// What the client has seen after it.
    pub transcript_digest: Option<String>,
}

/// Commits B, C and D. A `turn` change that ends the turn, or lets it wait for a person's word, also gives the lease back.
#[derive(Debug, Clone)]
pub struct TurnWrite {
    /// The same write sent again, because nobody knows whether it arrived, has the same id and is written once.
    pub id: Uuid,
    pub fence: Fence,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Uuid,
    pub user_id: String,
    pub now: Timestamp,
    pub messages: Vec<NewMessage>,
    /// Results for which a placeholder stands in the history.
    pub replacements: Vec<Replacement>,
    pub calls: Vec<CallRow>,
    pub approvals: Vec<NewApproval>,
    /// Calls whose pending approval is no longer asked for.
    pub withdrawn: Vec<Uuid>,
    pub starts: Vec<CallStart>,
    pub retries: Vec<CallRetry>,
    /// Before they end.
    pub provider_updates: Vec<ProviderCallUpdate>,
    pub ends: Vec<CallEnd>,
    /// Merged one after the other, in order.
    pub state_patches: Vec<State>,
    pub usage: Vec<NewUsage>,
    /// Messages of the conversation that were counted now, with their tokens.
    pub counted: Vec<(Uuid, i64)>,
    /// Takes the place of the conversation's last one.
    pub summary: Option<Summary>,
    pub events: Vec<NewEvent>,
    pub turn: Option<TurnChange>,
    /// An answer that broke off after the provider had run something keeps its step: the next one has this number plus one. It
    /// does not count as a committed step.
    pub given_up: Option<u32>,
}

impl TurnWrite {
    /// A write with nothing in it yet.
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
            given_up: None,
        }
    }
}

/// What a write left behind.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// One per event, in order.
    pub event_seqs: Vec<i64>,
    /// The session state after the patches; `None` when there were none.
    pub state: Option<State>,
    /// Somebody asked for the turn to stop.
    pub cancel_requested: bool,
}
