//! What channels receive: items that start no turn, contacts, and delivery reports.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{InboxEntry, JsonText, NewOutboxRow, OUTCOME_UNKNOWN, OutboxRow, OutboxStatus, StoreFuture};

/// What a channel receives: items that start no turn, known users, and delivery reports.
pub trait ChannelStore: Send + Sync {
    /// Records an inbound item that starts no turn, with what is sent about it. False when the inbox has the item already; then nothing is written.
    fn record_inbound(&self, inbound: RecordedInbound) -> StoreFuture<'_, bool>;
    /// Stores the contact of a known user. Returns its conversation, which is created when it is missing; two messages at once get the same one.
    fn contact(&self, contact: NewContact) -> StoreFuture<'_, Uuid>;
    /// Applies a delivery report. A status only moves forward. Returns the row as it is now, or `None` when no row matches or the inbox has
    /// the report already.
    fn report(&self, report: DeliveryReport) -> StoreFuture<'_, Option<OutboxRow>>;
}

/// A delivery report of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    pub tenant_id: Uuid,
    pub channel: String,
    pub account: String,
    /// The row's id, where the channel returns it.
    pub outbox_id: Option<Uuid>,
    pub external_id: String,
    pub status: ReportedStatus,
    pub inbox: InboxEntry,
    /// Written together with a row that becomes dead.
    pub announce: Vec<NewOutboxRow>,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedStatus {
    Sent,
    Delivered,
    Read,
    /// With `resend`, the row becomes `pending` again with this body; without, it is dead.
    Failed {
        code: String,
        message: String,
        resend: Option<Resend>,
    },
}

/// What is sent instead of a message that failed after it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resend {
    pub body: JsonText,
    pub at: Timestamp,
}

impl ReportedStatus {
    /// The status that the row gets, if that is forward. A row that was given up in doubt, or whose other sending failed, did arrive after all.
    pub(crate) fn moves(&self, row: &OutboxRow, external_id: &str) -> Option<OutboxStatus> {
        let to = match self {
            Self::Sent => OutboxStatus::Sent,
            Self::Delivered => OutboxStatus::Delivered,
            Self::Read => OutboxStatus::Read,
            Self::Failed { .. } => return None,
        };
        let of_another = row.external_id.as_deref().is_some_and(|known| known != external_id);
        let doubtful = row.status == OutboxStatus::Dead && (row.error_code.as_deref() == Some(OUTCOME_UNKNOWN) || of_another);
        // The states are declared in the order in which a row goes through them.
        (doubtful || row.status == OutboxStatus::Held || row.status < to).then_some(to)
    }
}

/// An inbound item without a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedInbound {
    pub tenant_id: Uuid,
    pub inbox: InboxEntry,
    pub rows: Vec<NewOutboxRow>,
    /// With it, `rows` are written only if the sender got no notice of this kind for that long.
    pub notice: Option<Notice>,
    pub now: Timestamp,
}

/// A text that a sender gets at most once per time span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub channel: String,
    pub account: String,
    /// The sender: a user id, or the address of an unknown sender.
    pub person: String,
    pub address: String,
    /// No notice was written after this time.
    pub since: Timestamp,
}

/// A known user who wrote on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewContact {
    pub tenant_id: Uuid,
    pub channel: String,
    pub account: String,
    pub user_id: String,
    /// Where answers go. Replaces the stored address.
    pub address: String,
    /// When the message was written; opens the window in which free text may be sent.
    pub inbound_at: Timestamp,
    /// The id and title of the conversation, if it must be created.
    pub conversation_id: Uuid,
    pub title: String,
    pub assistant: String,
    pub now: Timestamp,
}
