//! Something may be new: said by a knock of another process, or after a while by nobody. Whoever waits for what others write looks
//! again then, and never relies on being told.

use std::time::Duration;

use tokio::sync::watch;

/// The longest anybody waits without looking.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Wakes everybody who waits. Clones share it.
#[derive(Clone)]
pub(crate) struct Stir(watch::Sender<u64>);

/// One who waits; what was stirred since it last looked counts.
pub(crate) struct Stirred(watch::Receiver<u64>);

impl Default for Stir {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Stir {
    pub(crate) fn now(&self) {
        self.0.send_modify(|times| *times = times.wrapping_add(1));
    }

    pub(crate) fn listen(&self) -> Stirred {
        Stirred(self.0.subscribe())
    }
}

impl Stirred {
    /// Until something may be new, or this long has passed.
    pub(crate) async fn within(&mut self, longest: Duration) {
        // An error means that the house is gone, and then nothing is new.
        let _ = tokio::time::timeout(longest, self.0.changed()).await;
    }
}
