//! What waits for one subscriber. The text of a step is kept once for all of its readers, and a reader has a position in it: however far
//! it is behind in the text that grows now, it costs no more memory and gets what it missed in one piece. Texts of earlier steps and other
//! events are bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use werkruf_contract::{AssistantToken, EventType};

use super::event::{LiveEvent, StepText};
use crate::stored::json;

/// What an event costs beside its data.
const ENVELOPE: usize = 96;
/// The most text in one event, up to the end of a character.
pub(super) const PIECE: usize = 16 * 1024;
/// Events that may wait for one subscriber. Pieces of one text are one event.
pub(super) const MAX_EVENTS: usize = 1024;
/// Bytes that may wait for one subscriber beside the first event, so that 200 subscribers cost 25 MiB and not gigabytes.
pub(super) const MAX_BYTES: usize = 128 * 1024;
/// Bytes of the texts of earlier steps that may wait for one subscriber.
const MAX_EARLIER_TEXT: usize = 1024 * 1024;

#[derive(Debug)]
enum Queued {
    Event(LiveEvent),
    /// The bytes of a text from the subscriber's position on.
    Text {
        text: Arc<StepText>,
        from: usize,
        to: usize,
    },
}

impl Queued {
    /// The size of a text of another step.
    fn earlier_text(&self, now: &Arc<StepText>) -> usize {
        match self {
            Self::Text { text, .. } if !Arc::ptr_eq(text, now) => text.bytes(),
            Self::Text { .. } | Self::Event(_) => 0,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    /// The size of the waiting events without texts.
    bytes: usize,
    reader: Option<Waker>,
    /// The source or the subscriber has left.
    closed: bool,
}

impl Queue {
    fn push(&mut self, next: Queued) -> bool {
        if self.waiting.len() >= MAX_EVENTS {
            return false;
        }
        self.waiting.push_back(next);
        self.wake();
        true
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn pop(&mut self) -> Option<LiveEvent> {
        let Some(Queued::Text { text, from, to }) = self.waiting.front_mut() else {
            let Some(Queued::Event(event)) = self.waiting.pop_front() else { return None };
            self.bytes -= event.data.len() + ENVELOPE;
            return Some(event);
        };
        let content = text.slice(*from, (*from + PIECE).min(*to));
        *from += content.len();
        let (turn_id, data) = (text.turn_id, Arc::from(json(&AssistantToken { content, step: text.step })));
        if from == to {
            self.waiting.pop_front();
        }
        Some(LiveEvent { seq: None, kind: EventType::AssistantToken, turn_id, data, at: None })
    }
}

/// The side that fills the queue.
#[derive(Debug, Default)]
pub(super) struct QueueWriter(Arc<Mutex<Queue>>);

impl QueueWriter {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscription(&self) -> Subscription {
        Subscription { queue: Arc::clone(&self.0) }
    }

    /// Whether the subscriber has left.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Adds an event; false when it does not fit. An event alone in the queue always fits, and so does the end of a turn: a subscriber
    /// that has kept up must not lose it for its size.
    pub(super) fn push(&self, event: &LiveEvent) -> bool {
        let mut queue = self.lock();
        let size = event.data.len() + ENVELOPE;
        let fits = queue.bytes == 0 || queue.bytes + size <= MAX_BYTES || event.kind.ends_turn();
        if queue.closed || !fits {
            return false;
        }
        queue.bytes += size;
        queue.push(Queued::Event(event.clone()))
    }

    /// Adds the bytes of a text in this range. They join the bytes before them if the subscriber has not read those.
    pub(super) fn push_text(&self, text: &Arc<StepText>, from: usize, to: usize) -> bool {
        let mut queue = self.lock();
        if queue.closed {
            return false;
        }
        match queue.waiting.back_mut() {
            Some(Queued::Text { text: last, to: end, .. }) if Arc::ptr_eq(last, text) && *end == from => {
                *end = to;
                true
            }
            _ => {
                let earlier: usize = queue.waiting.iter().map(|waiting| waiting.earlier_text(text)).sum();
                earlier <= MAX_EARLIER_TEXT && queue.push(Queued::Text { text: Arc::clone(text), from, to })
            }
        }
    }
}

impl Drop for QueueWriter {
    fn drop(&mut self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.wake();
    }
}

/// The events for one subscriber, in order. It ends when the turn has ended, when the subscriber did not read fast enough, or when the
/// process stops.
#[derive(Debug)]
pub struct Subscription {
    queue: Arc<Mutex<Queue>>,
}

impl Subscription {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next event; `None` at the end.
    pub async fn recv(&mut self) -> Option<LiveEvent> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The same for callers that poll.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<LiveEvent>> {
        let mut queue = self.lock();
        match queue.pop() {
            Some(event) => Poll::Ready(Some(event)),
            None if queue.closed => Poll::Ready(None),
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    #[cfg(test)]
    pub(super) fn try_recv(&mut self) -> Option<LiveEvent> {
        self.lock().pop()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.waiting.clear();
    }
}
