//! A place where the fake waits until the test lets it go on, so that tests need no sleeps.

use std::sync::Arc;

use tokio::sync::watch;

/// A gate in an answer. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    pub(super) point: GatePoint,
    shared: Arc<Shared>,
}

/// Where an answer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatePoint {
    BeforeHead,
    AfterDeltas(usize),
}

#[derive(Debug)]
struct Shared {
    open: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

impl Gate {
    /// Before even the response head is sent.
    pub fn before_head() -> Self {
        Self::at(GatePoint::BeforeHead)
    }

    /// After so many pieces of text or calls; zero is after the head.
    pub fn after(deltas: usize) -> Self {
        Self::at(GatePoint::AfterDeltas(deltas))
    }

    fn at(point: GatePoint) -> Self {
        Self { point, shared: Arc::new(Shared { open: watch::Sender::new(false), reached: watch::Sender::new(false) }) }
    }

    /// Lets the answer, and every later one, through.
    pub fn open(&self) {
        self.shared.open.send_replace(true);
    }

    /// Waits until an answer stands before the gate.
    pub async fn reached(&self) {
        // The sender lives as long as the gate, so waiting cannot fail.
        let _ = self.shared.reached.subscribe().wait_for(|reached| *reached).await;
    }

    pub(super) async fn pass(&self) {
        self.shared.reached.send_replace(true);
        let _ = self.shared.open.subscribe().wait_for(|open| *open).await;
    }
}
