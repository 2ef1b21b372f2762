//! What goes wrong in one run, and how often. Drawn once per seed, so that some runs have only crashes, some only a bad
//! store, and some everything at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::dice::Dice;

/// Times in a thousand, each.
#[derive(Debug)]
pub struct Weather {
    /// Several processes on one database, whose leases lapse; else one process that owns the file.
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
    /// How often somebody looks what is to be decided.
    pub words: u64,
    /// Seconds a person has for a decision.
    pub patience: u32,
    /// Knocks at other processes that never arrive; half the time all of them.
    pub knocks_lost: u64,
    calm: AtomicBool,
}

impl Weather {
    /// Several processes, a database that always answers, slow models, and long stops.
    pub fn crowded(dice: &Dice) -> Self {
        let usual = Self::new(dice);
        Self { shared: true, write_lost: 0, ack_lost: 0, read_fails: 0, slow_store: 0, model_slow: 400, stops: 400, ..usual }
    }

    pub fn new(dice: &Dice) -> Self {
        // Half of all faults are absent from any one run.
        let up_to = |most: u64| if dice.permille(500) { 0 } else { dice.between(1, most) };
        Self {
            shared: dice.permille(400),
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
            words: up_to(400),
            patience: u32::try_from(dice.between(3, 80)).unwrap(),
            knocks_lost: if dice.permille(500) { 1000 } else { dice.between(0, 500) },
            calm: AtomicBool::new(false),
        }
    }

    /// No write or read of this run fails.
    pub const fn store_answers(&self) -> bool {
        self.write_lost == 0 && self.ack_lost == 0 && self.read_fails == 0
    }

    /// From now on nothing goes wrong any more.
    pub fn clear_up(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    /// Whether this bad thing happens now.
    pub fn strikes(&self, dice: &Dice, times: u64) -> bool {
        !self.is_calm() && dice.permille(times)
    }
}
