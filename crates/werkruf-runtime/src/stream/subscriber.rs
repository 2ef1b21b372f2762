//! The events that wait for one subscriber. Their number and their bytes are bounded, so that a subscriber that does not read costs a
//! bounded amount of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc;

use super::event::LiveEvent;

/// What an event costs beside its data.
const ENVELOPE: usize = 96;

/// The bytes that wait for one subscriber.
#[derive(Debug, Clone, Default)]
pub(super) struct QueuedBytes(Arc<AtomicUsize>);

impl QueuedBytes {
    /// Adds an event; false when the queue would hold more than `most` bytes. An event alone in the queue always fits.
    pub(super) fn add(&self, event: &LiveEvent, most: usize) -> bool {
        let size = event.data.len() + ENVELOPE;
        let before = self.0.fetch_add(size, Ordering::Relaxed);
        before == 0 || before + size <= most
    }

    fn remove(&self, event: &LiveEvent) {
        self.0.fetch_sub(event.data.len() + ENVELOPE, Ordering::Relaxed);
    }
}

/// The events for one subscriber, in order. It ends when the turn has ended, when the subscriber did not read fast enough, or when the
/// process stops.
#[derive(Debug)]
pub struct Subscription {
    receiver: mpsc::Receiver<LiveEvent>,
    queued: QueuedBytes,
}

impl Subscription {
    pub(super) const fn new(receiver: mpsc::Receiver<LiveEvent>, queued: QueuedBytes) -> Self {
        Self { receiver, queued }
    }

    /// The next event; `None` at the end.
    pub async fn recv(&mut self) -> Option<LiveEvent> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The same for callers that poll.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<LiveEvent>> {
        let event = ready!(self.receiver.poll_recv(cx));
        if let Some(event) = &event {
            self.queued.remove(event);
        }
        Poll::Ready(event)
    }

    #[cfg(test)]
    pub(super) fn try_recv(&mut self) -> Option<LiveEvent> {
        let event = self.receiver.try_recv().ok()?;
        self.queued.remove(&event);
        Some(event)
    }
}
