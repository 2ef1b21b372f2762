//! Wakes tasks that wait for changes of other processes. A notification or the poll interval wakes them; nothing depends on a
//! notification arriving.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The longest time between two looks at the store.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// Wakes all listeners, in the order they began to wait (a watch channel wakes them in random order). Clones share the listeners.
#[derive(Clone, Default)]
pub(crate) struct Wakeup(Arc<Shared>);

#[derive(Default)]
struct Shared {
    wakeups: AtomicU64,
    notify: Notify,
}

/// One waiting task. A wakeup since its last look counts.
pub(crate) struct WakeupListener {
    shared: Arc<Shared>,
    seen: u64,
}

impl Wakeup {
    pub(crate) fn wake(&self) {
        self.0.wakeups.fetch_add(1, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    pub(crate) fn listen(&self) -> WakeupListener {
        WakeupListener { shared: Arc::clone(&self.0), seen: self.0.wakeups.load(Ordering::SeqCst) }
    }
}

impl WakeupListener {
    /// Waits for a wakeup, at most this long.
    pub(crate) async fn within(&mut self, longest: Duration) {
        let shared = Arc::clone(&self.shared);
        let mut notified = pin!(shared.notify.notified());
        // Registered before the counter is read, so that no wakeup is missed in between.
        notified.as_mut().enable();
        if shared.wakeups.load(Ordering::SeqCst) == self.seen {
            let _ = tokio::time::timeout(longest, notified).await;
        }
        self.seen = shared.wakeups.load(Ordering::SeqCst);
    }
}
