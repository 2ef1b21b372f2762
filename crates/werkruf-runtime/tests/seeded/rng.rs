//! The one random number generator of a run. The seed alone decides every draw.

use std::sync::{Arc, Mutex};
use std::time::Duration;

/// SplitMix64. Clones share their state.
#[derive(Clone)]
pub struct Rng(Arc<Mutex<u64>>);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    fn draw(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `n`, exclusive.
    pub fn below(&self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    /// Both ends included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// As `between`, signed.
    pub fn between_signed(&self, low: u64, high: u64) -> i64 {
        i64::try_from(self.between(low, high)).unwrap()
    }

    /// True with this probability in permille.
    pub fn permille(&self, times: u64) -> bool {
        times > 0 && self.below(1000) < times
    }

    pub fn ms(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    pub fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(usize::try_from(self.below(from.len() as u64)).unwrap())
    }
}
