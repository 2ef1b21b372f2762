//! Deadlines by the clock the timers go by, so that both stop and jump together when a test moves time.

use std::time::Duration;

use tokio::time::Instant;
use werkruf_contract::Deadline;

/// A year is for ever here, and adding u64::MAX milliseconds would overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The moment it is, by that clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A deadline this far from now.
pub(crate) fn after(span: Duration) -> Deadline {
    Deadline::at((Instant::now() + span.min(FOR_EVER)).into_std())
}

/// What is left; zero once passed.
pub(crate) fn left(deadline: Deadline) -> Duration {
    deadline.instant().saturating_duration_since(Instant::now().into_std())
}
