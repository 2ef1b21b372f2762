//! What readers of a stream need beyond rows by id: the log in bites, the text that is no row yet, and where the log begins.
//!
//! Invariants: a partial text is written only under its turn's lease and only while its step is open, so it never outlives the
//! row it becomes; the numbers that are kept have no hole, only a later beginning.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{EventRow, Fence, StoreFuture};

/// The log as it is followed, and what stands beside it.
pub trait Streams: Send + Sync {
    /// Stored events after `after`, oldest first, until the bite is full; one at least where there is one.
    fn read_events(&self, tenant_id: Uuid, stream_id: Uuid, after: i64, bite: ReadLimit) -> StoreFuture<'_, Vec<EventRow>>;
    /// The first number that is kept; the next one to be given where nothing is left, 1 where nothing ever was.
    fn first_event(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, i64>;
    /// The text a running turn of the stream had shown when it was last kept.
    fn partial(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, Option<PartialText>>;
    /// Overwrites the text so far of these turns in one transaction. Those whose lease or step has moved on are left out;
    /// how many were written.
    fn save_partials(&self, partials: Vec<NewPartial>, now: Timestamp) -> StoreFuture<'_, usize>;
    /// Deletes events older than `before` from the beginnings of streams, a batch at a time: begins after the stream of the last
    /// batch. Events of a turn that has not ended stay, and so does everything after them.
    fn delete_events(&self, before: Timestamp, after: Option<StreamKey>) -> StoreFuture<'_, DeletedEvents>;
}

/// How much of a log is read at once: a long log costs a reader no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    pub rows: u32,
    /// Of data; the row that goes beyond is the last.
    pub bytes: usize,
}

/// One stream among those of all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamKey {
    pub tenant_id: Uuid,
    pub stream_id: Uuid,
}

/// What a batch of forgetting came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedEvents {
    pub events: usize,
    /// Where the next batch begins; `None` when every stream was looked at.
    pub next: Option<StreamKey>,
}

/// The text a step has shown so far, to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPartial {
    pub fence: Fence,
    pub turn_id: Uuid,
    /// The step that is being written: the one after the last that is a row.
    pub step: u32,
    pub content: String,
}

/// The text a step had shown, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialText {
    pub turn_id: Uuid,
    pub step: u32,
    pub content: String,
}
