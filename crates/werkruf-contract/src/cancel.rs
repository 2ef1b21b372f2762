//! How a tool learns that it should stop, without knowing which runtime drives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use event_listener::Event;

/// A flag that is raised once. Clones share it.
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
    /// Raises the flag and wakes everybody who waits for it.
    pub fn raise(&self) {
        self.shared.raised.store(true, Ordering::SeqCst);
        self.shared.event.notify(usize::MAX);
    }

    /// Whether the flag is up.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst)
    }

    /// Waits until the flag is up.
    pub async fn raised(&self) {
        loop {
            if self.is_raised() {
                return;
            }
            let listener = self.shared.event.listen();
            // Between the check and the listening the flag may have gone up.
            if self.is_raised() {
                return;
            }
            listener.await;
        }
    }
}

/// The moment after which nobody waits any more. Monotonic: wall clocks jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline this far from now.
    #[expect(clippy::disallowed_methods, reason = "deadlines are monotonic and never stored")]
    pub fn after(span: Duration) -> Self {
        let now = Instant::now();
        // A year is for ever here, and adding u64::MAX milliseconds would overflow.
        Self(now + span.min(Duration::from_secs(365 * 24 * 3600)))
    }

    /// At this instant, for whoever has timers with a clock of their own.
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// What is left; zero once passed.
    #[expect(clippy::disallowed_methods, reason = "deadlines are monotonic and never stored")]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }

    /// How long ago it passed; zero before.
    #[expect(clippy::disallowed_methods, reason = "deadlines are monotonic and never stored")]
    pub fn late(self) -> Duration {
        Instant::now().saturating_duration_since(self.0)
    }

    /// The earlier of the two.
    pub fn earlier(self, other: Self) -> Self {
        self.min(other)
    }

    /// The instant, for timers.
    pub const fn instant(self) -> Instant {
        self.0
    }
}
