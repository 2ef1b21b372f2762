//! One request at a time and not too fast: Amadeus refuses two within a tenth of a second in its test environment.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Whose turn it is, and when.
pub(super) struct RateLimiter {
    interval: Duration,
    next: Mutex<Option<Instant>>,
}

impl RateLimiter {
    /// Ten a second in the test environment, forty in production; a little slower, because networks squeeze requests together.
    pub(super) fn for_environment(environment: &str) -> Self {
        let interval = Duration::from_millis(if environment == "test" { 110 } else { 27 });
        Self { interval, next: Mutex::default() }
    }

    /// Resolves when a request may leave. First come, first served.
    pub(super) async fn wait(&self) {
        let mut next = self.next.lock().await;
        if let Some(at) = *next {
            sleep_until(at).await;
        }
        let earliest = next.map_or_else(|| self.one_interval_from_now(), |at| (at + self.interval).max(self.one_interval_from_now()));
        *next = Some(earliest);
    }

    fn one_interval_from_now(&self) -> Instant {
        werkruf_contract::Deadline::after(self.interval).instant().into()
    }
}
