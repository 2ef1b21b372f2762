//! Limits the request rate: Amadeus refuses two requests within a tenth of a second in its test environment.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Spaces requests by a fixed interval.
pub(super) struct RateLimiter {
    interval: Duration,
    next: Mutex<Option<Instant>>,
}

impl RateLimiter {
    /// Amadeus allows 10 requests per second in the test environment and 40 in production. The interval is slightly longer, because
    /// the network can shorten the gap between two requests.
    pub(super) fn for_environment(environment: &str) -> Self {
        let interval = Duration::from_millis(if environment == "test" { 110 } else { 27 });
        Self { interval, next: Mutex::default() }
    }

    /// Resolves when the next request may be sent, in the order of the calls.
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
