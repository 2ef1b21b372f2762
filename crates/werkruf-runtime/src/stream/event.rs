//! What subscribers receive, and what they ask for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use werkruf_contract::{EventType, Uuid};
use werkruf_store::PartialText;

/// One event as it is sent. All subscribers share the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEvent {
    /// `None` for tokens, debug entries and snapshots on resume: they are not rows.
    pub seq: Option<i64>,
    pub kind: EventType,
    pub turn_id: Uuid,
    /// JSON.
    pub data: Arc<str>,
    /// When the row was written, where the publisher knows it.
    pub at: Option<Timestamp>,
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

impl From<PartialText> for PartialAnswer {
    fn from(PartialText { turn_id, step, content }: PartialText) -> Self {
        Self { turn_id, step, content }
    }
}

/// The text of a step that is being written, shared by all of its readers. It only grows.
#[derive(Debug)]
pub(super) struct StepText {
    pub(super) turn_id: Uuid,
    pub(super) step: u32,
    content: Mutex<String>,
}

impl StepText {
    pub(super) const fn new(turn_id: Uuid, step: u32) -> Self {
        Self { turn_id, step, content: Mutex::new(String::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends; returns the range of bytes of what was appended.
    pub(super) fn append(&self, more: &str) -> (usize, usize) {
        let mut content = self.lock();
        let from = content.len();
        content.push_str(more);
        (from, content.len())
    }

    pub(super) fn bytes(&self) -> usize {
        self.lock().len()
    }

    /// The characters that begin in this range of bytes.
    pub(super) fn slice(&self, from: usize, to: usize) -> String {
        let content = self.lock();
        let end = content.ceil_char_boundary(to);
        content.get(from..end).unwrap_or_default().to_owned()
    }

    /// The text so far.
    pub(super) fn answer(&self) -> PartialAnswer {
        PartialAnswer { turn_id: self.turn_id, step: self.step, content: self.lock().clone() }
    }

    /// The same step with no text.
    pub(super) const fn without_text(&self) -> PartialAnswer {
        PartialAnswer { turn_id: self.turn_id, step: self.step, content: String::new() }
    }
}
