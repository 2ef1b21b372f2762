//! What subscribers of a stream need beyond rows by id: events in limited reads, the text of a message in progress, and the first event.
//!
//! Invariants: a partial text is written only under its turn's lease and only while its step is open, so it never outlives the
//! row it becomes; the numbers of the stored events have no gap; only the oldest are ever deleted.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{EventRow, Fence, StoreFuture};

/// Events and partial texts of streams.
pub trait Streams: Send + Sync {
    /// Stored events after `after`, oldest first, up to the limit; at least one where there is one. `turn_id` restricts them to one turn.
    fn events(
        &self,
        tenant_id: Uuid,
        stream_id: Uuid,
        turn_id: Option<Uuid>,
        after: i64,
        limit: ReadLimit,
    ) -> StoreFuture<'_, Vec<EventRow>>;
    /// The number of the first stored event; the next number where none is left, 1 where there never was one.
    fn first_event(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, i64>;
    /// The latest checkpoint of the partial text of the stream's running turn.
    fn partial(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, Option<PartialText>>;
    /// Overwrites the partial texts of these turns in one transaction, and returns how many were written. A turn with a newer
    /// lease or step is left out.
    fn save_partials(&self, partials: Vec<NewPartial>, now: Timestamp) -> StoreFuture<'_, usize>;
}

/// How many events are read at once, which bounds the memory of a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    pub rows: u32,
    /// Of data; the row that exceeds it is the last.
    pub bytes: usize,
}

impl ReadLimit {
    /// This many events, whatever their size.
    pub const fn rows(rows: u32) -> Self {
        Self { rows, bytes: usize::MAX }
    }

    /// Whether a read ended at this limit, so that more events may follow.
    pub fn is_reached_by(self, events: &[EventRow]) -> bool {
        events.len() >= self.rows as usize || events.iter().map(|row| row.data.len()).sum::<usize>() >= self.bytes
    }
}

/// The key of a stream among all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamKey {
    pub tenant_id: Uuid,
    pub stream_id: Uuid,
}

/// The result of one batch of deletions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeletedEvents {
    pub(crate) events: usize,
    /// Where the next batch begins; `None` after the last stream.
    pub(crate) next: Option<StreamKey>,
}

/// A checkpoint of the text that a step has produced so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPartial {
    pub fence: Fence,
    pub turn_id: Uuid,
    /// The step in progress: the one after the last committed step.
    pub step: u32,
    pub content: String,
}

/// A stored checkpoint of a step's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialText {
    pub turn_id: Uuid,
    pub step: u32,
    pub content: String,
}
