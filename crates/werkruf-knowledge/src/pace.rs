//! Gives searches the processors that a long ingest would take.
//!
//! After a write during which a search started, the writes of the process wait: four times as long as that write took, at most a second.
//! So one client that adds documents without a pause leaves most of the time to searches. The writes of several clients add up their rests, but
//! only up to that limit, and those that waited start together. Without searches nothing waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The length of a rest, as a multiple of the write before it.
const REST: u32 = 4;
/// How long one write waits at most, also when other writes add to the rest meanwhile. Shorter than the time that open requests have when the
/// server ends, so that a write that waits then is still answered.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// When the next write may start.
#[derive(Default)]
pub(super) struct Pace {
    searches: AtomicU64,
    rests_until: Mutex<Option<Instant>>,
}

impl Pace {
    /// Notes that a search has started.
    pub(super) fn note_search(&self) {
        self.searches.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs a write after the rest of the writes before it.
    pub(super) async fn write<T>(&self, work: impl Future<Output = T>) -> T {
        self.rested().await;
        self.write_now(work).await
    }

    /// Waits for the rest of the writes before.
    pub(super) async fn rested(&self) {
        let waits_until = Instant::now() + LONGEST_REST;
        while let Some(until) = self.rests_until().map(|until| until.min(waits_until)).filter(|until| *until > Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Runs a write; those after it rest.
    pub(super) async fn write_now<T>(&self, work: impl Future<Output = T>) -> T {
        let (began, searches) = (Instant::now(), self.searches.load(Ordering::Relaxed));
        let done = work.await;
        if self.searches.load(Ordering::Relaxed) != searches {
            self.rest(began.elapsed() * REST);
        }
        done
    }

    fn rests_until(&self) -> Option<Instant> {
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the rest, which writes that ran together share.
    fn rest(&self, duration: Duration) {
        let now = Instant::now();
        let mut rests_until = self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        let from = rests_until.map_or(now, |until| until.max(now));
        *rests_until = Some((from + duration).min(now + LONGEST_REST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn work(pace: &Pace, searches: u32) -> Duration {
        let began = Instant::now();
        pace.write(async {
            (0..searches).for_each(|_| pace.note_search());
            tokio::time::sleep(Duration::from_millis(100)).await;
        })
        .await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_rests_only_after_a_write_that_saw_a_search() {
        let pace = Pace::default();
        let mut took = Vec::new();
        for searches in [0, 0, 3, 1, 0, 0] {
            took.push(work(&pace, searches).await.as_millis());
        }
        assert_eq!(took, [100, 100, 100, 500, 500, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_a_rest_that_grows_meanwhile_but_not_for_ever() {
        let pace = Pace::default();
        work(&pace, 1).await;
        let longer = async {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(300)).await;
                pace.rest(Duration::from_millis(400));
            }
        };
        let (waited, ()) = tokio::join!(work(&pace, 0), longer);
        assert_eq!(waited, LONGEST_REST + Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_at_once_add_their_rests_up_to_a_limit() {
        let pace = Pace::default();
        tokio::join!(work(&pace, 1), work(&pace, 1));
        assert_eq!(work(&pace, 0).await, Duration::from_millis(900));
        futures_util::future::join_all((0..50).map(|_| work(&pace, 1))).await;
        assert_eq!(work(&pace, 0).await, LONGEST_REST + Duration::from_millis(100));
    }
}
