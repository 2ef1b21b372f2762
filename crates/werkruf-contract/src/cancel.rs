//! Cancellation and deadlines for tools, independent of any async runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use event_listener::Event;

/// A cancellation flag that is raised once. All clones share one flag.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    raised: AtomicBool,
    event: Event,
}

impl Cancel {
    /// Raises the flag and wakes all waiting tasks.
    pub fn raise(&self) {
        self.shared.raised.store(true, Ordering::SeqCst);
        self.shared.event.notify(usize::MAX);
    }

    /// Whether the flag is raised.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst)
    }

    /// Waits until the flag is raised.
    pub async fn raised(&self) {
        loop {
            if self.is_raised() {
                return;
            }
            let listener = self.shared.event.listen();
            // The flag may have been raised between the check and the registration of the listener.
            if self.is_raised() {
                return;
            }
            listener.await;
        }
    }
}

/// The moment at which the caller stops waiting. Uses the monotonic clock, because wall clocks jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline this far from now.
    #[expect(clippy::disallowed_methods, reason = "deadlines are monotonic and never stored")]
    pub fn after(span: Duration) -> Self {
        let now = Instant::now();
        // The span is limited to one year, because adding u64::MAX milliseconds would overflow.
        Self(now + span.min(Duration::from_secs(365 * 24 * 3600)))
    }

    /// A deadline at this instant, for callers whose timers use a clock of their own.
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The remaining time; zero once the deadline has passed.
    #[expect(clippy::disallowed_methods, reason = "deadlines are monotonic and never stored")]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }

    /// The time since the deadline passed; zero before.
    #[expect(clippy::disallowed_methods, reason = "deadlines are monotonic and never stored")]
    pub fn late(self) -> Duration {
        Instant::now().saturating_duration_since(self.0)
    }

    /// The earlier of two deadlines.
    pub fn earlier(self, other: Self) -> Self {
        self.min(other)
    }

    /// The instant, for timers.
    pub const fn instant(self) -> Instant {
        self.0
    }
}
