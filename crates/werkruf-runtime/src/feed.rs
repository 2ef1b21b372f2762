//! Live events as one reader takes them. The hub weighs what it puts in, so that no reader holds more than a bounded number
//! of bytes that nobody takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc;

use crate::hub::LiveEvent;

/// An event beside its data.
const ENVELOPE: usize = 96;

/// The bytes that wait for one reader.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weight(Arc<AtomicUsize>);

impl Weight {
    /// Puts an event on the scale; false when it is too much. Alone, an event is never too much.
    pub(crate) fn add(&self, event: &LiveEvent, most: usize) -> bool {
        let size = event.data.len() + ENVELOPE;
        let before = self.0.fetch_add(size, Ordering::Relaxed);
        before == 0 || before + size <= most
    }

    fn take(&self, event: &LiveEvent) {
        self.0.fetch_sub(event.data.len() + ENVELOPE, Ordering::Relaxed);
    }
}

/// What a reader hears, in order. It ends when the turn has ended, when the reader fell behind, or when the house closes.
#[derive(Debug)]
pub struct Subscription {
    receiver: mpsc::Receiver<LiveEvent>,
    weight: Weight,
}

impl Subscription {
    pub(crate) const fn new(receiver: mpsc::Receiver<LiveEvent>, weight: Weight) -> Self {
        Self { receiver, weight }
    }

    /// The next event; `None` at the end.
    pub async fn recv(&mut self) -> Option<LiveEvent> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The same, for whoever polls by hand.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<LiveEvent>> {
        let event = ready!(self.receiver.poll_recv(cx));
        if let Some(event) = &event {
            self.weight.take(event);
        }
        Poll::Ready(event)
    }

    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Option<LiveEvent> {
        let event = self.receiver.try_recv().ok()?;
        self.weight.take(&event);
        Some(event)
    }
}
