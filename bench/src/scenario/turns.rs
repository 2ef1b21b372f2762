//! Turns with one call, with ten calls one after another, and with one call after two hundred messages: one floor and one Werkruf.

use std::sync::Arc;

use uuid::Uuid;
use werkruf_contract::Clock;

use super::{Findings, Plan, Scenario, load};
use crate::audit::Expected;
use crate::floor;
use crate::load::{Bars, Older, TURNS_PER_OLDER_CHAT};
use crate::seed::{self, SeedStore};
use crate::stage::{Database, Stage, floor_target, werkruf_target};

const SIDES: [&str; 2] = ["floor", "werkruf"];
/// Concurrent chats with a long history.
const HISTORY_CHATS: usize = 4;
/// An upper bound of turns per second with a long history; there must be enough conversations for all of them.
const MAX_RATE: u64 = 1_600;

pub(super) async fn run(plan: &Plan, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let wanted: Vec<Scenario> = short(plan).into_iter().chain([long(plan)]).filter(|scenario| plan.wants(scenario.name)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let (floor_file, werkruf_file) = (stage.file("floor.db"), stage.file("werkruf.db"));
    let model = stage.model(0)?;
    let mut expected = Expected::default();
    let mut older = None;
    if plan.wants("history") {
        older = Some(long_conversations(plan, stage, &mut expected).await?);
    }
    let (floor, werkruf) = (stage.floor(&model, &floor_file)?, stage.werkruf(&model, &Database::File(werkruf_file))?);
    let pool = || older.clone().map(|ids| Arc::new(Older::new(ids)));
    for scenario in wanted {
        let older = if scenario.name == "history" { (pool(), pool()) } else { (None, None) };
        let targets = [&floor_target(&floor, older.0), &werkruf_target(&werkruf, older.1)];
        let comparison = scenario.run(plan.rounds, client, targets, [None, Some(&mut expected)]).await?;
        findings.comparisons.push(comparison);
    }
    drop((floor, werkruf, model));
    findings.audit("werkruf.db", &Database::File(stage.file("werkruf.db")), &expected).await
}

/// The turns in new conversations.
pub(super) fn short(plan: &Plan) -> [Scenario; 2] {
    let chats = plan.chats;
    [
        Scenario {
            name: "one-call",
            title: format!("one-call turn, {chats} chats"),
            sides: SIDES,
            bars: Bars { cpu: Some(1.5), rate: Some(0.8), memory: None },
            load: load(plan, chats, ""),
            calls: 1,
        },
        Scenario {
            name: "ten-calls",
            title: format!("ten calls one after another in a turn, {chats} chats"),
            sides: SIDES,
            bars: Bars { cpu: Some(1.5), rate: Some(0.8), memory: None },
            load: load(plan, chats, "steps=10"),
            calls: 10,
        },
    ]
}

fn long(plan: &Plan) -> Scenario {
    Scenario {
        name: "history",
        title: format!("one-call turn behind {}-{} messages, {HISTORY_CHATS} chats", seed::HISTORY, seed::HISTORY + 40),
        sides: SIDES,
        bars: Bars { cpu: Some(1.2), rate: Some(0.8), memory: None },
        load: load(plan, HISTORY_CHATS, "history=200"),
        calls: 1,
    }
}

/// Writes the same conversations to both files.
#[expect(clippy::print_stderr, reason = "progress output")]
async fn long_conversations(plan: &Plan, stage: &Stage, expected: &mut Expected) -> Result<Vec<Uuid>, String> {
    let turns = (plan.seconds + 1) * plan.rounds as u64 * MAX_RATE;
    let count = turns / TURNS_PER_OLDER_CHAT + (HISTORY_CHATS * plan.rounds) as u64;
    eprintln!("history: writing {count} conversations of {} messages", seed::HISTORY);
    let clock = Clock::system(0);
    let ids: Vec<Uuid> = (0..count).map(|_| clock.new_id()).collect();
    let past = seed::past();
    floor::seed(&stage.file("floor.db"), &ids, &past).await?;
    let file = Database::File(stage.file("werkruf.db"));
    let model = stage.model(0)?;
    // The first start of the server creates the schema and the users.
    drop(stage.werkruf(&model, &file)?);
    let seed_store = SeedStore::open(&file).await?;
    seed::history(&seed_store, &ids, &past).await?;
    expected.older_messages(count * past.len() as u64);
    Ok(ids)
}
