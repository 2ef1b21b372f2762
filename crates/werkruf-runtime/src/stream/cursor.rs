//! How far the subscribers of a stream have been served, where several processes write to it.
//!
//! Invariants: numbered events are delivered one after another, none left out. An event that comes too early is delivered later from its row.
//! While subscribers are behind they receive no text; when they have caught up they receive all of it at once.

use std::sync::Arc;

use werkruf_contract::{AssistantSnapshot, EventType, Uuid};

use super::event::{LiveEvent, PartialAnswer};
use crate::stored::json;

/// The position of a stream's subscribers.
pub(super) struct Cursor {
    pub(super) tenant_id: Uuid,
    /// The last number that was delivered.
    pub(super) delivered: i64,
    /// The highest number that this process has written since the first subscriber joined; 0 before.
    pub(super) known: i64,
    pub(super) behind: bool,
    /// The store's mark of the partial text that was sent last.
    pub(super) partial_mark: Option<String>,
    /// The partial text that was sent last. It may be incomplete, and the row that ends its turn may come next.
    pub(super) partial: Option<PartialAnswer>,
}

/// When an event is delivered.
pub(super) enum Delivery {
    Now,
    /// From its row, after the rows before it.
    Later,
    /// It was delivered before, or it is not a row and would be out of order.
    Never,
}

impl Cursor {
    pub(super) const fn new(tenant_id: Uuid, after: i64) -> Self {
        Self { tenant_id, delivered: after, known: 0, behind: false, partial_mark: None, partial: None }
    }

    /// A subscriber joined that has fewer events than the others; true where that is so.
    pub(super) const fn rewind(&mut self, after: i64) -> bool {
        let fewer = after < self.delivered;
        if fewer {
            (self.delivered, self.behind) = (after, true);
        }
        fewer
    }

    /// Notes a text that was sent, perhaps not to its end, before the row that settles it is delivered.
    pub(super) fn note_unsettled(&mut self, partial: Option<PartialAnswer>) {
        self.partial = partial.or_else(|| self.partial.take());
    }

    /// Decides on an event of this process.
    pub(super) fn deliver(&mut self, seq: Option<i64>) -> Delivery {
        let Some(seq) = seq else { return if self.behind { Delivery::Never } else { Delivery::Now } };
        if seq <= self.delivered {
            return Delivery::Never;
        }
        self.known = self.known.max(seq);
        if self.behind || seq > self.delivered + 1 {
            self.behind = true;
            return Delivery::Later;
        }
        self.delivered = seq;
        Delivery::Now
    }
}

/// Whether a row settles this text. A row of an earlier step or turn, delivered again for a new subscriber, does not.
pub(super) fn settles(partial: &PartialAnswer, row: &LiveEvent) -> bool {
    let step = || serde_json::from_str::<serde_json::Value>(&row.data).ok().and_then(|data| data["step"].as_u64());
    row.kind.settles_text() && row.turn_id == partial.turn_id && (row.kind.ends_turn() || step() >= Some(u64::from(partial.step)))
}

/// The whole text of a turn of which subscribers have a part, taken from the event that ends the turn.
pub(super) fn whole_text(partial: &PartialAnswer, end: &LiveEvent) -> Option<LiveEvent> {
    if end.kind != EventType::Final || partial.turn_id != end.turn_id {
        return None;
    }
    let data: serde_json::Value = serde_json::from_str(&end.data).ok()?;
    let content = data["message"]["content"].as_str().filter(|content| *content != partial.content)?.to_owned();
    Some(snapshot(PartialAnswer { content, ..partial.clone() }))
}

/// A text as the event that replaces what a subscriber has of its step.
pub(super) fn snapshot(partial: PartialAnswer) -> LiveEvent {
    let PartialAnswer { turn_id, step, content } = partial;
    let data = Arc::from(json(&AssistantSnapshot::text(content, step, turn_id)));
    LiveEvent { seq: None, kind: EventType::AssistantSnapshot, turn_id, data, at: None }
}
