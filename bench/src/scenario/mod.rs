//! The scenarios, which run one after another. Each alternates between its two servers, round by round, and is audited afterwards.

mod against;
mod budgets;
mod cluster;
mod many;
mod search;
mod stored;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use crate::audit::{Expected, audit};
use crate::load::{Bars, Comparison, Load, Target};
use crate::stage::{Database, Stage};

pub use search::SearchReport;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: usize,
    pub seconds: u64,
    pub chats: usize,
    /// The names of the scenarios to run; empty for all.
    pub only: Vec<String>,
    /// The size of the collection to search in; all sizes without it.
    pub chunks: Option<usize>,
    /// Also run with a million stored calls.
    pub million: bool,
    /// Also run on this PostgreSQL.
    pub postgres: Option<String>,
    /// The program to measure; the one beside this program without it.
    pub program: Option<PathBuf>,
    /// Compare only with this build of the program.
    pub against: Option<PathBuf>,
}

/// The names of the scenarios, for `only`.
pub const NAMES: [&str; 9] = ["one-call", "ten-calls", "history", "thousand", "stored", "budgets", "search", "postgres", "replicas"];

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Findings {
    pub comparisons: Vec<Comparison>,
    pub searches: Vec<SearchReport>,
    /// The deviations that the audit found.
    pub wrong: Vec<String>,
    pub audited: Vec<String>,
}

impl Findings {
    async fn audit(&mut self, name: &str, database: &Database, expected: &Expected) -> Result<(), String> {
        let wrong = audit(database, expected).await?;
        self.wrong.extend(wrong.into_iter().map(|what| format!("{name}: {what}")));
        self.audited.push(name.to_owned());
        Ok(())
    }
}

/// One scenario: its load, its texts, its bars.
struct Scenario {
    name: &'static str,
    title: String,
    sides: [&'static str; 2],
    bars: Bars,
    load: Load,
    /// Calls in each turn.
    calls: u64,
}

impl Scenario {
    /// Alternates between the two servers; adds the answered turns to the expected rows of each.
    #[expect(clippy::print_stderr, reason = "progress output")]
    async fn run(
        &self,
        rounds: usize,
        client: &reqwest::Client,
        targets: [&Target; 2],
        expected: [Option<&mut Expected>; 2],
    ) -> Result<Comparison, String> {
        let mut done = Vec::with_capacity(rounds);
        for round in 1..=rounds {
            eprintln!("{}: round {round} of {rounds}", self.name);
            let baseline = self.load.run(targets[0], client).await.map_err(|error| format!("{}: {error}", self.sides[0]))?;
            let ours = self.load.run(targets[1], client).await.map_err(|error| format!("{}: {error}", self.sides[1]))?;
            done.push([baseline, ours]);
        }
        for (side, expected) in expected.into_iter().enumerate() {
            if let Some(expected) = expected {
                expected.turns(done.iter().map(|round| round[side].answered).sum(), self.calls);
            }
        }
        Ok(Comparison { name: self.name, title: self.title.clone(), sides: self.sides, bars: self.bars, rounds: done })
    }
}

/// Runs all scenarios of the plan.
#[expect(clippy::disallowed_methods, reason = "the load has a client of its own")]
pub async fn run(plan: &Plan) -> Result<Findings, String> {
    let stage = Stage::new(plan.program.clone())?;
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(1024).build().map_err(|error| error.to_string())?;
    let mut findings = Findings::default();
    if let Some(other) = &plan.against {
        against::run(plan, other, &stage, &client, &mut findings).await?;
        return Ok(findings);
    }
    turns::run(plan, &stage, &client, &mut findings).await?;
    if plan.wants("thousand") {
        many::run(plan, &stage, &client, &mut findings).await?;
    }
    if plan.wants("stored") {
        stored::run(plan, &stage, &client, &mut findings).await?;
    }
    if plan.wants("budgets") {
        budgets::run(plan, &stage, &client, &mut findings).await?;
    }
    if plan.wants("search") {
        search::run(plan, &stage, &client, &mut findings).await?;
    }
    if let Some(url) = &plan.postgres {
        cluster::run(plan, url, &stage, &client, &mut findings).await?;
    }
    Ok(findings)
}

fn load(plan: &Plan, chats: usize, shape: &'static str) -> Load {
    Load { chats, warm_up: Duration::from_secs(1), window: Duration::from_secs(plan.seconds), shape }
}
