//! Letting go of rows that were kept long enough, a batch at a time, so that turns go on in between.
//!
//! Invariants: a turn goes whole or stays whole, and only after its end; nothing leaves a conversation in which a turn has not ended; what
//! is needed to know a message or an effect again stays until it is not: an unexpired row of the inbox, a message still to be sent, a
//! call whose outcome nobody knows before the person has spoken again.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::StoreFuture;

/// What concerns all tenants at once: old rows.
pub trait Retention: Send + Sync {
    /// Looks at the next rows after `after` and deletes those that may go; with `dry_run` it only counts them.
    fn sweep(&self, sweep: Sweep, after: Option<RowKey>) -> StoreFuture<'_, Swept>;
}

/// Which rows a sweep is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweepable {
    /// From the beginnings of conversations, whole turns, with what else repeats their words: the turn's answer, what a client brought,
    /// messages that were sent, the title, a summary of nothing that is left. What is empty then goes too: turns without calls, and
    /// conversations without turns, with their logs.
    Messages,
    /// From the beginnings of logs.
    Events,
    /// Whole turns, with attempts and approvals. One outside any conversation goes with its turn and its log.
    Calls,
    /// What was spent.
    Usage,
}

/// What may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    pub rows: Sweepable,
    /// Older than this.
    pub before: Timestamp,
    /// By the clock that gave the inbox its times.
    pub now: Timestamp,
    /// Count, and delete nothing.
    pub dry_run: bool,
}

/// One row among those of all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowKey {
    pub tenant_id: Uuid,
    pub id: Uuid,
}

/// What a batch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Of the kind that was asked for.
    pub rows: u64,
    /// That were left with nothing and went.
    pub conversations: u64,
    /// Where the next batch begins; `None` when everything was looked at.
    pub next: Option<RowKey>,
}
