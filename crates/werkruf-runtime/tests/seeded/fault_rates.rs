//! Which faults happen in one run, and how often. Drawn once per seed, so that some runs have only crashes, some only store
//! faults, and some everything at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::rng::Rng;

/// Probabilities in permille.
#[derive(Debug)]
pub struct FaultRates {
    /// Several processes on one database, whose leases expire; otherwise one process that owns the file.
    pub shared: bool,
    pub write_lost: u64,
    pub ack_lost: u64,
    pub read_fails: u64,
    pub slow_store: u64,
    pub model_fails: u64,
    pub model_slow: u64,
    pub tool_fails: u64,
    pub tool_slow: u64,
    pub kills: u64,
    pub stops: u64,
    pub drains: u64,
    pub cancels: u64,
    /// How often a client decides an approval.
    pub decisions: u64,
    /// Seconds until an approval expires.
    pub approval_ttl_s: u32,
    /// Notifications to other processes that never arrive; in half of the runs all of them.
    pub notifications_lost: u64,
    calm: AtomicBool,
}

impl FaultRates {
    /// Several processes, a database that always answers, slow models, and long pauses.
    pub fn crowded(rng: &Rng) -> Self {
        let usual = Self::new(rng);
        Self { shared: true, write_lost: 0, ack_lost: 0, read_fails: 0, slow_store: 0, model_slow: 400, stops: 400, ..usual }
    }

    pub fn new(rng: &Rng) -> Self {
        // Each kind of fault is absent from half of the runs.
        let up_to = |most: u64| if rng.permille(500) { 0 } else { rng.between(1, most) };
        Self {
            shared: rng.permille(400),
            write_lost: up_to(150),
            ack_lost: up_to(100),
            read_fails: up_to(80),
            slow_store: up_to(100),
            model_fails: up_to(400),
            model_slow: up_to(150),
            tool_fails: up_to(500),
            tool_slow: up_to(200),
            kills: up_to(700),
            stops: up_to(500),
            drains: up_to(300),
            cancels: up_to(200),
            decisions: up_to(400),
            approval_ttl_s: u32::try_from(rng.between(3, 80)).unwrap(),
            notifications_lost: if rng.permille(500) { 1000 } else { rng.between(0, 500) },
            calm: AtomicBool::new(false),
        }
    }

    /// Whether no write or read of this run fails.
    pub const fn store_answers(&self) -> bool {
        self.write_lost == 0 && self.ack_lost == 0 && self.read_fails == 0
    }

    /// Ends all faults.
    pub fn stop(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    /// Whether a fault of this rate happens now.
    pub fn hit(&self, rng: &Rng, times: u64) -> bool {
        !self.is_calm() && rng.permille(times)
    }
}
