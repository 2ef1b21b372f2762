//! What subscribers receive, and what they ask for.

use std::sync::Arc;

use werkruf_contract::{EventType, Uuid};

/// One event as it is sent. All subscribers share the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEvent {
    /// `None` for tokens, debug entries and snapshots on resume: they are not rows.
    pub seq: Option<i64>,
    pub kind: EventType,
    pub turn_id: Uuid,
    /// JSON.
    pub data: Arc<str>,
}

/// What a subscriber wants to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Only this turn; `None` receives the whole conversation.
    pub turn_id: Option<Uuid>,
    pub debug: bool,
    /// The last event number that the subscriber has. Where several processes share a database, it receives everything after it.
    pub after: i64,
}

/// The text of a step that is still being written: what a new subscriber has missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialAnswer {
    pub turn_id: Uuid,
    pub step: u32,
    pub content: String,
}

impl PartialAnswer {
    /// The same step with no text.
    pub(super) fn without_text(self) -> Self {
        Self { content: String::new(), ..self }
    }
}
