//! Wakes tasks that wait for changes of other processes. A notification or the poll interval wakes them; nothing depends on a
//! notification arriving.

use std::time::Duration;

use tokio::sync::watch;

/// The longest time between two looks at the store.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// Wakes all listeners. Clones share them.
#[derive(Clone)]
pub(crate) struct Wakeup(watch::Sender<u64>);

/// One waiting task. A wakeup since its last look counts.
pub(crate) struct WakeupListener(watch::Receiver<u64>);

impl Default for Wakeup {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Wakeup {
    pub(crate) fn wake(&self) {
        self.0.send_modify(|times| *times = times.wrapping_add(1));
    }

    pub(crate) fn listen(&self) -> WakeupListener {
        WakeupListener(self.0.subscribe())
    }
}

impl WakeupListener {
    /// Waits for a wakeup, at most this long.
    pub(crate) async fn within(&mut self, longest: Duration) {
        // An error means that the engine was dropped; then there is nothing to wait for.
        let _ = tokio::time::timeout(longest, self.0.changed()).await;
    }
}
