//! Deadlines by tokio's clock, which also drives the timers: when a test moves time, both move together.

use std::time::Duration;

use tokio::time::Instant;
use werkruf_contract::Deadline;

/// The longest span. Adding `u64::MAX` milliseconds would overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The current time by that clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A deadline this far from now.
pub(crate) fn after(span: Duration) -> Deadline {
    Deadline::at((Instant::now() + span.min(LONGEST)).into_std())
}

/// What is left; zero once passed.
pub(crate) fn left(deadline: Deadline) -> Duration {
    deadline.instant().saturating_duration_since(Instant::now().into_std())
}
