//! Everything outside the simulated processes: the tables of the database, the tools' remote side, time, randomness, and the trace.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use werkruf_contract::{Clock, Principal, Role, Uuid};
use werkruf_store::StoreError;

use crate::fault_rates::FaultRates;
use crate::mutant::Mutant;
use crate::observations::Observations;
use crate::process::Process;
use crate::rng::Rng;
use crate::tables::{Tables, stream_of};
use crate::trace::{Trace, short};

/// The role that may approve calls.
pub const APPROVER: &str = "approver";
/// The start time of every run, in Unix seconds.
const BEGIN: i64 = 1_750_000_000;

pub struct World {
    pub rng: Rng,
    pub faults: FaultRates,
    pub mutant: Mutant,
    pub trace: Trace,
    pub clock: Clock,
    pub tables: Mutex<Tables>,
    pub observed: Mutex<Observations>,
    pub violations: Mutex<Vec<String>>,
    /// Tasks outside every process: writes on the network, running tool requests.
    pub tasks: TaskTracker,
    pub principal: Arc<Principal>,
    /// All processes that share the database, the dead ones included.
    pub processes: Mutex<Vec<Arc<Process>>>,
}

impl World {
    /// Must be called inside a runtime whose time is paused.
    pub fn new(seed: u64, mutant: Mutant) -> Arc<Self> {
        let rng = Rng::new(seed);
        let began = Instant::now();
        let begin = Timestamp::from_second(BEGIN).unwrap();
        let clock = Clock::driven(move || begin + SignedDuration::try_from(began.elapsed()).unwrap(), seed);
        let faults = if mutant.is_between_processes() { FaultRates::crowded(&rng) } else { FaultRates::new(&rng) };
        let tables = Tables { shared: faults.shared, ..Tables::default() };
        let principal = Principal {
            tenant_id: Uuid::from_u128(1),
            tenant_slug: "demo".to_owned(),
            user_id: "1".to_owned(),
            name: "Ada".to_owned(),
            roles: vec![Role { id: 1, name: APPROVER.to_owned() }],
            branch_id: None,
            locale: "en".to_owned(),
            time_zone: "UTC".to_owned(),
            permissions: Vec::new(),
        };
        let world = Self {
            rng,
            faults,
            mutant,
            trace: Trace::new(),
            clock,
            tables: Mutex::new(tables),
            observed: Mutex::default(),
            violations: Mutex::default(),
            tasks: TaskTracker::new(),
            principal: Arc::new(principal),
            processes: Mutex::default(),
        };
        world.trace.note("world", format_args!("{:?}", world.faults));
        Arc::new(world)
    }

    pub fn note(&self, who: &str, what: std::fmt::Arguments<'_>) {
        self.trace.note(who, what);
    }

    pub fn count(&self, what: &'static str) {
        self.observed.lock().unwrap().counts.one(what);
    }

    /// Records the violation of an invariant.
    pub fn violated(&self, what: String) {
        self.trace.note("!!!", format_args!("{what}"));
        self.violations.lock().unwrap().push(what);
    }

    /// A running process sends a request only under an unexpired lease of its own.
    pub fn check_lease(&self, process: &Process, turn_id: Uuid, what: std::fmt::Arguments<'_>) {
        if !self.faults.shared || process.is_stopped() || process.is_dead() {
            return;
        }
        let tables = self.tables.lock().unwrap();
        let lease = tables.turns.get(&turn_id).and_then(|turn| tables.leases.get(&stream_of(turn)));
        let now = self.clock.now();
        let ours = lease.is_some_and(|lease| lease.owner.as_ref() == process.owner.get() && lease.expires_at.is_some_and(|end| end > now));
        let state = format!("{lease:?}");
        drop(tables);
        if !ours {
            self.violated(format!("{} starts {what} without a lease: {state}", process.name));
        }
    }

    /// No turn is taken over from a working process if the database always answered.
    pub fn check_takeover(&self, before: Option<&str>, turn_id: Uuid) {
        let processes = self.processes.lock().unwrap();
        let worked = |process: &&Arc<Process>| !process.is_dead() && !process.was_stopped.is_raised();
        let owner = processes.iter().filter(worked).find(|process| process.owner.get().map(String::as_str) == before);
        let name = owner.filter(|_| before.is_some() && self.faults.store_answers() && self.faults.slow_store == 0);
        let name = name.map(|process| process.name.clone());
        drop(processes);
        if let Some(name) = name {
            self.violated(format!("turn {} was taken over from {name}, which worked on it", short(turn_id)));
        }
    }

    /// Delays the task for a few polls, for milliseconds or, if the store is slow, for seconds.
    pub async fn delay(&self) {
        match self.rng.below(10) {
            0..=2 => {}
            3..=6 => {
                for _ in 0..self.rng.between(1, 3) {
                    tokio::task::yield_now().await;
                }
            }
            _ => tokio::time::sleep(self.rng.ms(1, 15)).await,
        }
        if self.faults.hit(&self.rng, self.faults.slow_store) {
            tokio::time::sleep(self.rng.ms(50, 3000)).await;
        }
    }

    pub async fn rest(&self, low: u64, high: u64) {
        let span: Duration = self.rng.ms(low, high);
        tokio::time::sleep(span).await;
    }

    /// Applies all changes or none.
    pub fn transaction<T>(&self, work: impl FnOnce(&mut Tables) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut tables = self.tables.lock().unwrap();
        let mut copy = tables.clone();
        copy.clock = Some(self.clock.now());
        let done = work(&mut copy)?;
        *tables = copy;
        Ok(done)
    }
}
