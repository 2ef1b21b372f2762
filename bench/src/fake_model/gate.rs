//! A gate at which the fake model waits until the test opens it, so that tests need no sleeps.

use std::sync::Arc;

use tokio::sync::watch;

/// A gate in a response. Clones share its state.
#[derive(Debug, Clone)]
pub struct Gate {
    pub(super) point: GatePoint,
    shared: Arc<Shared>,
}

/// The position of a gate.
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
    /// Before the headers of the response.
    pub fn before_head() -> Self {
        Self::at(GatePoint::BeforeHead)
    }

    /// After so many pieces of text or calls; zero is after the headers.
    pub fn after(deltas: usize) -> Self {
        Self::at(GatePoint::AfterDeltas(deltas))
    }

    fn at(point: GatePoint) -> Self {
        Self { point, shared: Arc::new(Shared { open: watch::Sender::new(false), reached: watch::Sender::new(false) }) }
    }

    /// Lets this response and all later ones continue.
    pub fn open(&self) {
        self.shared.open.send_replace(true);
    }

    /// Waits until a response has reached the gate.
    pub async fn reached(&self) {
        // The sender lives as long as the gate, so waiting cannot fail.
        let _ = self.shared.reached.subscribe().wait_for(|reached| *reached).await;
    }

    pub(super) async fn pass(&self) {
        self.shared.reached.send_replace(true);
        let _ = self.shared.open.subscribe().wait_for(|open| *open).await;
    }
}
