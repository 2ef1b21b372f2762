//! Deletes rows past their retention time, a batch at a time, so that turns run in between.
//!
//! Invariants: a turn is deleted as a whole and only after its end; nothing is deleted from a conversation in which a turn has not ended;
//! a turn stays while it is needed to recognize a repeated message or effect: while its inbox row has not expired, and while the outcome of
//! one of its calls is unknown and the user has sent no later message.

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Uuid;

use crate::StoreFuture;

/// Deletes old rows of all tenants.
pub trait Retention: Send + Sync {
    /// Deletes the rows of the next batch after `after` that may be deleted; with `dry_run` it only counts them.
    fn sweep(&self, sweep: Sweep, after: Option<RowKey>) -> StoreFuture<'_, Swept>;
    /// Deletes rows of modules whose time has passed, inbox rows without a turn, links that connect accounts, notifications to programs that arrived long ago, alerts that ended
    /// long ago, and contacts of people who are no users and wrote long ago; at most a batch of each table. Returns how many; 0 means that none is left.
    fn delete_expired(&self, now: Timestamp) -> StoreFuture<'_, u64>;
}

/// How long a notification to a program is kept after it arrived.
pub(crate) const NOTIFICATION_AGE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How long an alert is kept after it ended, or was told once. Longer than any period of a budget, so that none is told again.
pub(crate) const ALERT_AGE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How long a contact without user and conversation is kept.
pub(crate) const CONTACT_AGE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The rows that a sweep deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweepable {
    /// Messages of whole turns from the start of conversations, with every copy of their text: the turn's answer, the client request, the
    /// title, and a summary of deleted messages only. Turns left without messages and calls are deleted too, and so are conversations
    /// without turns, with their events.
    Messages,
    /// From the start of each stream. Events of a turn that has not ended stay, and so do all events after them.
    Events,
    /// The calls of whole turns, with attempts and approvals. A turn without a conversation is deleted too, with its events.
    Calls,
    /// Usage rows.
    Usage,
    /// Rows of the outbox that were sent or are dead: they have the text of messages.
    Outbox,
}

/// Which rows may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    pub rows: Sweepable,
    /// Older than this.
    pub before: Timestamp,
    /// By the clock that set the expiry of inbox rows.
    pub now: Timestamp,
    /// Count, and delete nothing.
    pub dry_run: bool,
}

/// The key of a row among all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowKey {
    pub tenant_id: Uuid,
    pub id: Uuid,
}

/// The result of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows of the requested kind.
    pub rows: u64,
    /// Conversations that became empty and were deleted.
    pub conversations: u64,
    /// Where the next batch begins; `None` after the last one.
    pub next: Option<RowKey>,
}
