//! When a background loop last did its work. `/readyz` and the operator's alerts read it.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// The last progress of one loop, in Unix milliseconds; 0 means none yet.
#[derive(Debug, Default)]
pub struct LoopProgress(AtomicI64);

impl LoopProgress {
    /// The loop has done its work: a round that could not reach the database is no progress.
    pub fn tick(&self, now: Timestamp) {
        self.0.store(now.as_millisecond(), Ordering::Relaxed);
    }

    /// When the loop last made progress; `None` before its first round.
    pub fn last(&self) -> Option<Timestamp> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            millis => Timestamp::from_millisecond(millis).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_unknown_until_the_first_round() {
        let progress = LoopProgress::default();
        assert_eq!(progress.last(), None);
        let now = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        progress.tick(now);
        assert_eq!(progress.last(), Some(now));
    }
}
