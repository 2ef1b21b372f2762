//! Ends turns that no process will resume. The store finds these turns and applies the write; the runtime decides what the write
//! contains, because it knows what an abandoned call becomes.

use jiff::Timestamp;

use crate::{CallRow, Fence, MessageRow, StoreError, TurnRow, TurnWrite};

/// The owner of the lease during the transaction that ends the turn.
pub(crate) const OWNER: &str = "maintenance";

/// Decides how a turn ends that no process will resume.
pub trait TurnCloser: Send + Sync {
    /// The write that ends the turn: its `ends` are all calls that were open, and its `turn` change is terminal. The store applies it in
    /// the transaction that read the rows. A transaction that is repeated asks again.
    fn close(&self, unfinished: UnfinishedTurn, fence: Fence, reason: CloseReason, now: Timestamp) -> Result<TurnWrite, StoreError>;
}

/// The stored rows of a turn that is to be ended.
#[derive(Debug, Clone)]
pub struct UnfinishedTurn {
    pub turn: TurnRow,
    /// In the order of step and output index.
    pub calls: Vec<CallRow>,
    /// Messages of the turn that have a `seq`, in order. Empty where the turn has no conversation.
    pub messages: Vec<MessageRow>,
}

/// Why the turn is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The database was restored: it is unknown what happened since the backup.
    Restored,
    /// Its user is erased.
    Canceled,
}
