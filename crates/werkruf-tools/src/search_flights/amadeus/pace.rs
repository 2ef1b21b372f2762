//! One request at a time and not too fast: Amadeus refuses two within a tenth of a second in its test environment.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Whose turn it is, and when.
pub(super) struct Pace {
    between: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// Ten a second in the test environment, forty in production; a little slower, because networks squeeze requests together.
    pub(super) fn for_environment(environment: &str) -> Self {
        let between = Duration::from_millis(if environment == "test" { 110 } else { 27 });
        Self { between, next: Mutex::default() }
    }

    /// Resolves when a request may leave. First come, first served.
    pub(super) async fn wait(&self) {
        let mut next = self.next.lock().await;
        if let Some(at) = *next {
            sleep_until(at).await;
        }
        let earliest = next.map_or_else(|| self.after_this_one(), |at| (at + self.between).max(self.after_this_one()));
        *next = Some(earliest);
    }

    fn after_this_one(&self) -> Instant {
        werkruf_contract::Deadline::after(self.between).instant().into()
    }
}
