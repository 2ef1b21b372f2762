//! The only place that reads the wall clock, creates ids and draws random numbers.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use uuid::{ContextV7, Uuid};

/// The wall clock of the process. `WERKRUF_CLOCK_OFFSET_S` shifts it; tests may replace it with a driven clock.
#[derive(Clone)]
pub struct Clock {
    time: Time,
    ids: Arc<Mutex<Ids>>,
}

#[derive(Clone)]
enum Time {
    System { offset: SignedDuration },
    Driven(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

enum Ids {
    System(ContextV7),
    Driven(Sequence),
}

impl Clock {
    /// The system's clock, shifted by this many seconds.
    pub fn system(offset_seconds: i64) -> Self {
        let offset = SignedDuration::from_secs(offset_seconds);
        Self { time: Time::System { offset }, ids: Arc::new(Mutex::new(Ids::System(ContextV7::new()))) }
    }

    /// A clock with the time of `now`, whose ids and random numbers depend on the seed only, so that a run can be repeated exactly.
    pub fn driven(now: impl Fn() -> Timestamp + Send + Sync + 'static, seed: u64) -> Self {
        let sequence = Sequence { drawn: 0, state: seed };
        Self { time: Time::Driven(Arc::new(now)), ids: Arc::new(Mutex::new(Ids::Driven(sequence))) }
    }

    /// The current time, truncated to milliseconds, the precision of the tables.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn now(&self) -> Timestamp {
        let now = match &self.time {
            Time::System { offset } => {
                let now = Timestamp::now();
                now.checked_add(*offset).unwrap_or(now)
            }
            Time::Driven(now) => now(),
        };
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    /// How far the clock is shifted on purpose.
    pub const fn offset(&self) -> SignedDuration {
        match &self.time {
            Time::System { offset } => *offset,
            Time::Driven(_) => SignedDuration::ZERO,
        }
    }

    /// A new id that sorts after all ids that this clock created before.
    pub fn new_id(&self) -> Uuid {
        let now = self.now();
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *ids {
            Ids::System(context) => {
                let seconds = u64::try_from(now.as_second()).unwrap_or(0);
                let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
                Uuid::new_v7(uuid::Timestamp::from_unix(&*context, seconds, nanos))
            }
            Ids::Driven(sequence) => sequence.id(u64::try_from(now.as_millisecond()).unwrap_or(0)),
        }
    }

    /// A random number in `0.0..1.0`, for spreading work over time; not for secrets.
    pub fn chance(&self) -> f64 {
        // The last four bytes of an id are random and do not affect its order.
        let [.., a, b, c, d] = self.new_id().into_bytes();
        f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Generates ids that depend on a seed only.
struct Sequence {
    drawn: u32,
    state: u64,
}

impl Sequence {
    fn id(&mut self, millis: u64) -> Uuid {
        self.drawn = self.drawn.wrapping_add(1);
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // Version and variant overwrite bits of the first and the third byte, so the counter goes into the bytes between and after them.
        let [a, b, c, d] = self.drawn.to_be_bytes();
        let [w, x, y, z, ..] = mixed.to_be_bytes();
        uuid::Builder::from_unix_timestamp_millis(millis, &[0, a, 0, b, c, d, w, x, y, z]).into_uuid()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Clock");
        if let Time::System { offset } = &self.time {
            out.field("offset", offset);
        }
        out.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::Clock;

    #[test]
    fn a_driven_clock_is_repeatable_and_its_ids_are_in_order() {
        let clock = || Clock::driven(|| Timestamp::from_second(1_700_000_000).unwrap(), 7);
        let draw = |clock: Clock| (0..1000).map(|_| clock.new_id()).collect::<Vec<_>>();
        let ids = draw(clock());
        assert!(ids.is_sorted() && ids.iter().all(|id| id.get_version_num() == 7));
        assert_eq!(ids, draw(clock()));
        assert_ne!(ids, draw(Clock::driven(|| Timestamp::from_second(1_700_000_000).unwrap(), 8)));
    }

    #[test]
    fn random_numbers_cover_the_range_from_zero_to_one() {
        for clock in [Clock::system(0), Clock::driven(|| Timestamp::UNIX_EPOCH, 1)] {
            let drawn: Vec<f64> = (0..1000).map(|_| clock.chance()).collect();
            assert!(drawn.iter().all(|chance| (0.0..1.0).contains(chance)));
            assert!(drawn.iter().any(|chance| *chance < 0.1) && drawn.iter().any(|chance| *chance > 0.9));
        }
    }
}
