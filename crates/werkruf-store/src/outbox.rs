//! The outbox: what the server sends to people and programs, in order per recipient; and the contacts that channels know.
//!
//! Invariants: rows are written in the transaction of what they announce. Rows of one lane leave in order: only the oldest open row of a
//! lane is claimed, under the lock of the lane's own row. A row whose sending may have succeeded is sent at most once more and marked.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use werkruf_contract::Uuid;

use crate::page::bytes_of;
use crate::{Act, Author, JsonText, ListRow, Page, StoreFuture};

/// The outbox and the contacts of channels.
pub trait Outbox: Send + Sync {
    /// The contacts of these users on a channel.
    fn contacts_of(&self, tenant_id: Uuid, channel: String, user_ids: Vec<String>) -> StoreFuture<'_, Vec<ContactRow>>;
    /// Takes the oldest open row of lanes of an account that are due, of all tenants, and marks each as `sending`. A row that was found
    /// `sending` after its time is marked `ambiguous` and sent once more, unless it is repeatable; the second time it is given up. Where
    /// several processes share the database, its clock decides what is due.
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>>;
    /// The accounts with open rows, the one that is due first before the others. A time may be earlier than that of the oldest open row; the
    /// next claim corrects that.
    fn due(&self) -> StoreFuture<'_, Vec<DueAccount>>;
    /// The rows that an earlier process of this database left `sending` wait until then for a delivery report; those that are repeatable are
    /// due now. Does nothing where several processes share the database: there the time of the claim decides.
    fn adopt(&self, owner: String, now: Timestamp, until: Timestamp) -> StoreFuture<'_, u64>;
    /// Writes what became of a sending. False when the row is not `sending` by this owner and in this attempt (any more).
    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, bool>;
    fn outbox(&self, tenant_id: Uuid, filter: OutboxFilter, page: Page) -> StoreFuture<'_, Vec<OutboxRow>>;
}

/// Sends rows again that are dead, or that a restore holds.
pub trait ManageOutbox: Send + Sync {
    /// A dead row, the dead parts of its turn before it, and the later ones that died with it become `pending` with no attempts. False when
    /// it is not dead.
    fn retry_outbox(&self, tenant_id: Uuid, id: Uuid, by: Author, now: Timestamp) -> StoreFuture<'_, bool>;
    /// Rows that a restore holds become `pending` with no attempts: one and the parts of its turn before it, or all of the tenant. Returns how
    /// many.
    fn release_outbox(&self, tenant_id: Uuid, id: Option<Uuid>, by: Author, now: Timestamp) -> StoreFuture<'_, u64>;
}

/// The acts on rows.
pub(crate) fn retried(id: Uuid) -> Act {
    Act::new("outbox.retry", id.to_string())
}

pub(crate) fn released(id: Option<Uuid>, rows: u64) -> Act {
    Act::new("outbox.release", id.map_or_else(|| "outbox".to_owned(), |id| id.to_string())).after(json!({"released": rows}))
}

/// The states of a row, in the order in which a row goes through them. A restore holds rows that were not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutboxStatus {
    Pending,
    Sending,
    Sent,
    Delivered,
    Read,
    Dead,
    Held,
}

impl OutboxStatus {
    pub const ALL: [Self; 7] = [Self::Pending, Self::Sending, Self::Sent, Self::Delivered, Self::Read, Self::Dead, Self::Held];

    /// The value in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sending => "sending",
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Read => "read",
            Self::Dead => "dead",
            Self::Held => "held",
        }
    }

    /// Whether the row still keeps its lane waiting.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Sending)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// Where a row goes. Rows with the same lane leave in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// `whatsapp`, `webhook`.
    pub channel: String,
    /// The sending number, or the name of the webhook.
    pub account: String,
    /// The address at the channel.
    pub address: String,
    /// The user who receives it, so that an erasure finds it.
    pub user_id: Option<String>,
    pub lane: String,
}

/// A row to write. Its part is the next one of its turn and channel, by the order of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOutboxRow {
    pub id: Uuid,
    pub recipient: Recipient,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Option<Uuid>,
    pub approval_id: Option<Uuid>,
    /// What is sent, in a form that the channel understands.
    pub body: JsonText,
    /// Whether the recipient recognizes a repeated sending by its id. Otherwise a doubtful one is repeated once and marked.
    pub repeatable: bool,
    /// A row that can never be sent is written as dead, with this code.
    pub dead: Option<String>,
    pub next_at: Timestamp,
}

/// A row of `outbox`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub recipient: Recipient,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Option<Uuid>,
    pub approval_id: Option<Uuid>,
    pub part: u32,
    pub body: JsonText,
    pub status: OutboxStatus,
    pub repeatable: bool,
    pub ambiguous: bool,
    pub attempts: u32,
    pub error_code: Option<String>,
    pub error: Option<String>,
    pub external_id: Option<String>,
    pub next_at: Timestamp,
    /// When it was first tried; a retry or a release begins anew.
    pub first_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl OutboxRow {
    /// Whether the row is a part of what its turn says to a person. Later parts die with an earlier one.
    pub fn is_part(&self) -> bool {
        self.turn_id.is_some() && self.approval_id.is_none() && self.recipient.channel != "webhook"
    }

    /// Whether another attempt may start then. The time counts from the first attempt, so that a row that waited behind others has its own.
    pub fn may_be_tried_at(&self, at: Timestamp) -> bool {
        self.attempts < MAX_ATTEMPTS && self.first_at.is_none_or(|first| at.duration_since(first) < MAX_AGE)
    }

    /// Why a row that is due must not be sent again. Only a row that was being sent and whose time passed can be given up.
    pub(crate) fn give_up(&self, now: Timestamp) -> Option<&'static str> {
        match (self.status, self.repeatable) {
            (OutboxStatus::Sending, true) if !self.may_be_tried_at(now) => Some(ATTEMPTS_EXHAUSTED),
            (OutboxStatus::Sending, false) if self.ambiguous => Some(OUTCOME_UNKNOWN),
            _ => None,
        }
    }

    /// Whether a report of failure counts. One about another sending of the row does not.
    pub(crate) fn may_fail(&self, external_id: &str) -> bool {
        matches!(self.status, OutboxStatus::Sending | OutboxStatus::Sent)
            && self.external_id.as_deref().is_none_or(|known| known == external_id)
    }
}

impl ListRow for OutboxRow {
    fn list_bytes(&self) -> usize {
        bytes_of(&[Some(&self.body), self.error.as_deref(), Some(&self.recipient.address), Some(&self.recipient.lane)])
    }
}

/// Which rows to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxFilter {
    pub id: Option<Uuid>,
    pub status: Option<OutboxStatus>,
    /// Only rows that carry the buttons of this approval.
    pub approval_id: Option<Uuid>,
    /// Only rows to this user.
    pub user_id: Option<String>,
    /// Only rows that an account sent under this id of its channel.
    pub sent_as: Option<(Account, String)>,
}

impl OutboxFilter {
    pub fn of_id(id: Uuid) -> Self {
        Self { id: Some(id), ..Self::default() }
    }

    pub fn of_status(status: OutboxStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    pub fn of_approval(approval_id: Uuid) -> Self {
        Self { approval_id: Some(approval_id), ..Self::default() }
    }
}

/// What sends rows: a number of a channel, or a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    pub channel: String,
    pub account: String,
}

/// An account with open rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAccount {
    pub account: Account,
    pub at: Timestamp,
}

/// A request for rows to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The process that sends them.
    pub owner: String,
    pub account: Account,
    pub now: Timestamp,
    /// The end of a sending must be written before this time.
    pub until: Timestamp,
    /// At most so many lanes.
    pub limit: u32,
    /// What the process is sending already. Such a row is not taken again, however late it is; it stays claimed.
    pub being_sent: Vec<Uuid>,
}

/// A row that a process has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// To be sent, as the attempt in its `attempts`.
    Send(OutboxRow),
    /// Not to be sent again: to be settled as dead with this code, together with what announces that.
    GiveUp { row: OutboxRow, code: &'static str },
}

impl Claimed {
    pub const fn row(&self) -> &OutboxRow {
        match self {
            Self::Send(row) | Self::GiveUp { row, .. } => row,
        }
    }
}

/// The code of a row whose sending was in doubt twice.
pub const OUTCOME_UNKNOWN: &str = "outcome_unknown";
/// The code of a row that was tried too often, or for too long.
pub const ATTEMPTS_EXHAUSTED: &str = "attempts_exhausted";
/// The code of a part that died with an earlier one of its turn.
pub const EARLIER_PART_DEAD: &str = "earlier_part_dead";
/// So many attempts, and for so long after the first, before a row is dead.
pub(crate) const MAX_ATTEMPTS: u32 = 10;
pub(crate) const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

/// What became of a sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub tenant_id: Uuid,
    pub id: Uuid,
    /// Who sent it, and the attempt that is settled.
    pub owner: String,
    pub attempt: u32,
    pub end: SendEnd,
    /// Written together with a dead row.
    pub announce: Vec<NewOutboxRow>,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendEnd {
    Sent {
        external_id: Option<String>,
    },
    /// It surely did not arrive; another attempt follows.
    Retry {
        at: Timestamp,
        code: String,
        message: String,
    },
    /// It may have arrived. The row stays `sending` until a report comes, or until then.
    Unknown {
        until: Timestamp,
        code: String,
        message: String,
    },
    /// It did not arrive and never will. Later parts of the same turn in the lane die with it (`earlier_part_dead`).
    Dead {
        code: String,
        message: String,
    },
}

/// A row of `contacts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContactRow {
    pub channel: String,
    pub account: String,
    pub user_id: String,
    pub address: String,
    /// `None` when it was deleted; the next message gets a new one.
    pub conversation_id: Option<Uuid>,
    pub last_inbound_at: Option<Timestamp>,
}
