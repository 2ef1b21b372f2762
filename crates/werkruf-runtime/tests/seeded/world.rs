//! Everything outside a process: the database's tables, the other side of the tools, time, chance, and who writes it all down.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use werkruf_contract::{Clock, Principal, Role, Uuid};
use werkruf_store::StoreError;

use crate::dice::Dice;
use crate::ledger::ProviderAccounts;
use crate::mutant::Mutant;
use crate::process::Process;
use crate::tables::{Tables, stream_of};
use crate::trace::{Trace, short};
use crate::weather::Weather;

/// Whoever has this role gives the word.
pub const BOSS: &str = "boss";
/// When every run begins.
const BEGIN: i64 = 1_750_000_000;

pub struct World {
    pub dice: Dice,
    pub weather: Weather,
    pub mutant: Mutant,
    pub trace: Trace,
    pub clock: Clock,
    pub tables: Mutex<Tables>,
    pub ledger: Mutex<ProviderAccounts>,
    pub violations: Mutex<Vec<String>>,
    /// What goes on outside any process: writes on the wire, tools at work.
    pub tasks: TaskTracker,
    pub person: Arc<Principal>,
    /// Everybody who shares the database, the dead included.
    pub processes: Mutex<Vec<Arc<Process>>>,
}

impl World {
    /// Inside a runtime whose time is paused.
    pub fn new(seed: u64, mutant: Mutant) -> Arc<Self> {
        let dice = Dice::new(seed);
        let began = Instant::now();
        let begin = Timestamp::from_second(BEGIN).unwrap();
        let clock = Clock::driven(move || begin + SignedDuration::try_from(began.elapsed()).unwrap(), seed);
        let weather = if mutant.is_between_processes() { Weather::crowded(&dice) } else { Weather::new(&dice) };
        let tables = Tables { shared: weather.shared, ..Tables::default() };
        let person = Principal {
            tenant_id: Uuid::from_u128(1),
            tenant_slug: "house".to_owned(),
            user_id: "1".to_owned(),
            name: "Ada".to_owned(),
            roles: vec![Role { id: 1, name: BOSS.to_owned() }],
            branch_id: None,
            locale: "en".to_owned(),
            time_zone: "UTC".to_owned(),
            permissions: Vec::new(),
        };
        let world = Self {
            dice,
            weather,
            mutant,
            trace: Trace::new(),
            clock,
            tables: Mutex::new(tables),
            ledger: Mutex::default(),
            violations: Mutex::default(),
            tasks: TaskTracker::new(),
            person: Arc::new(person),
            processes: Mutex::default(),
        };
        world.trace.note("world", format_args!("{:?}", world.weather));
        Arc::new(world)
    }

    pub fn note(&self, who: &str, what: std::fmt::Arguments<'_>) {
        self.trace.note(who, what);
    }

    pub fn count(&self, what: &'static str) {
        self.ledger.lock().unwrap().counts.one(what);
    }

    /// Something that must never be.
    pub fn violated(&self, what: String) {
        self.trace.note("!!!", format_args!("{what}"));
        self.violations.lock().unwrap().push(what);
    }

    /// Whatever leaves a process that runs leaves under a lease that has not lapsed and that nobody else has.
    pub fn check_lease(&self, process: &Process, turn_id: Uuid, what: std::fmt::Arguments<'_>) {
        if !self.weather.shared || process.is_stopped() || process.is_dead() {
            return;
        }
        let tables = self.tables.lock().unwrap();
        let lease = tables.turns.get(&turn_id).and_then(|turn| tables.leases.get(&stream_of(turn)));
        let now = self.clock.now();
        let ours = lease.is_some_and(|lease| lease.owner.as_ref() == process.owner.get() && lease.expires_at.is_some_and(|end| end > now));
        let found = format!("{lease:?}");
        drop(tables);
        if !ours {
            self.violated(format!("{} begins {what} without a lease: {found}", process.name));
        }
    }

    /// Nobody takes a turn from a process that works, where the database always answered.
    pub fn check_takeover(&self, before: Option<&str>, turn_id: Uuid) {
        let processes = self.processes.lock().unwrap();
        let worked = |process: &&Arc<Process>| !process.is_dead() && !process.was_stopped.is_raised();
        let owner = processes.iter().filter(worked).find(|process| process.owner.get().map(String::as_str) == before);
        let name = owner.filter(|_| before.is_some() && self.weather.store_answers() && self.weather.slow_store == 0);
        let name = name.map(|process| process.name.clone());
        drop(processes);
        if let Some(name) = name {
            self.violated(format!("turn {} was taken from {name}, which worked on it", short(turn_id)));
        }
    }

    /// Lets others go first: for a few polls, for milliseconds, or, in bad weather, for seconds.
    pub async fn hesitate(&self) {
        match self.dice.below(10) {
            0..=2 => {}
            3..=6 => {
                for _ in 0..self.dice.between(1, 3) {
                    tokio::task::yield_now().await;
                }
            }
            _ => tokio::time::sleep(self.dice.ms(1, 15)).await,
        }
        if self.weather.strikes(&self.dice, self.weather.slow_store) {
            tokio::time::sleep(self.dice.ms(50, 3000)).await;
        }
    }

    pub async fn rest(&self, low: u64, high: u64) {
        let span: Duration = self.dice.ms(low, high);
        tokio::time::sleep(span).await;
    }

    /// All of it or nothing.
    pub fn transaction<T>(&self, work: impl FnOnce(&mut Tables) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut tables = self.tables.lock().unwrap();
        let mut copy = tables.clone();
        copy.clock = Some(self.clock.now());
        let done = work(&mut copy)?;
        *tables = copy;
        Ok(done)
    }
}
