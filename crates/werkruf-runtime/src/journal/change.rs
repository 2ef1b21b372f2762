//! What a commit writes, and where in a turn it happens.

use serde::Serialize;
use werkruf_contract::{EventType, State, Uuid};
use werkruf_store::{
    CallEnd, CallRetry, CallRow, CallStart, NewApproval, NewMessage, NewOutboxRow, NewReservation, NewUsage, ProviderCallUpdate,
    Replacement, Summary, TurnChange,
};

use crate::stored::json;
use crate::trace::EndedSpan;

/// Where in a turn a commit happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitPoint {
    /// B: the assistant message and every call's row, before anything of a call leaves the process.
    Calls,
    /// C: outcomes of calls.
    Outcomes,
    /// D: how the turn ended.
    End,
    /// An attempt failed and another follows.
    Retry,
    /// The provider started or finished a call of its own.
    ProviderItem,
    /// Approvals for the provider are about to leave with a model request.
    Granted,
    /// An answer broke off: text that was shown is taken back.
    AbandonedAnswer,
    /// A budget counts the next model request: what is staged, and the reservation, before the request leaves.
    Reservation,
    /// A summary of older messages.
    Summary,
    /// The turn waits for approvals and gives its lease back.
    AwaitingApproval,
    /// A takeover: what becomes of the calls that another process left.
    Takeover,
    /// A takeover: the outcomes of those calls.
    CaughtUp,
}

/// One thing that a commit writes.
pub(crate) enum Change {
    Message(NewMessage),
    /// A result for which the history holds a placeholder.
    Replacement(Replacement),
    Call(Box<CallRow>),
    Approval(NewApproval),
    /// The pending approval of this call is withdrawn.
    WithdrawApproval(Uuid),
    CallStart(CallStart),
    CallRetry(CallRetry),
    ProviderCallUpdate(ProviderCallUpdate),
    CallEnd(Box<CallEnd>),
    StatePatch(State),
    Usage(NewUsage),
    /// A message of the conversation and its number of tokens.
    TokenCount(Uuid, i64),
    Summary(Summary),
    Turn(TurnChange),
    /// A step whose answer broke off after the provider had run calls. Its number is not used again.
    AbandonedStep(u32),
    /// The worst case of the next model request.
    Reserve(NewReservation),
    /// Every reservation of the turn ends that no usage row of the commit ends.
    ReleaseReservations,
    /// What is sent about the commit, beside what follows from the other changes.
    Outbox(NewOutboxRow),
    Event(Event),
    /// It is no row: it leaves once the commit is durable.
    Span(EndedSpan),
}

/// An event that becomes a row.
pub(crate) struct Event {
    pub(super) kind: EventType,
    pub(super) row: String,
    /// What clients receive, where the row is shorter.
    pub(super) sent: Option<String>,
}

impl Event {
    pub(crate) fn new(kind: EventType, payload: &impl Serialize) -> Self {
        Self { kind, row: json(payload), sent: None }
    }

    /// An event whose row is shorter than what clients receive.
    pub(crate) fn with_row(kind: EventType, row: String, sent: &impl Serialize) -> Self {
        Self { kind, row, sent: Some(json(sent)) }
    }
}

macro_rules! changes_from {
    ($($kind:ident),* $(,)?) => {
        $(impl From<$kind> for Change {
            fn from(change: $kind) -> Self {
                Self::$kind(change.into())
            }
        })*
    };
}

changes_from!(Replacement, CallStart, CallRetry, ProviderCallUpdate, CallEnd, Summary, Event);

impl From<NewMessage> for Change {
    fn from(message: NewMessage) -> Self {
        Self::Message(message)
    }
}

impl From<CallRow> for Change {
    fn from(row: CallRow) -> Self {
        Self::Call(Box::new(row))
    }
}

impl From<NewApproval> for Change {
    fn from(approval: NewApproval) -> Self {
        Self::Approval(approval)
    }
}

impl From<NewOutboxRow> for Change {
    fn from(row: NewOutboxRow) -> Self {
        Self::Outbox(row)
    }
}

impl From<NewUsage> for Change {
    fn from(usage: NewUsage) -> Self {
        Self::Usage(usage)
    }
}

impl From<TurnChange> for Change {
    fn from(change: TurnChange) -> Self {
        Self::Turn(change)
    }
}
