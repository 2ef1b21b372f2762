//! One-call turns on a database with many stored calls: the cost must not grow with the number of rows.

use super::{Findings, Plan, Scenario, load};
use crate::audit::Expected;
use crate::load::{Bars, Child};
use crate::seed::{self, SeedStore};
use crate::stage::{Database, Stage, floor_target, werkruf_target};

pub(super) const SOME: u64 = 10_000;
pub(super) const MANY: u64 = 1_000_000;
/// The allowed ratio between the two.
const FLAT: f64 = 1.1;

pub(super) async fn run(plan: &Plan, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let model = stage.model(0)?;
    let floor = stage.floor(&model, &stage.file("floor-stored.db"))?;
    let (some, mut expected) = filled(stage, &model, &Database::File(stage.file("stored-10k.db")), SOME).await?;
    let (floor_target, some_target) = (floor_target(&floor, None), werkruf_target(&some, None));
    let mut scenario = Scenario {
        name: "stored",
        title: format!("one-call turn, {SOME} calls stored, {} chats", plan.chats),
        sides: ["floor, empty", "10k calls"],
        bars: Bars { cpu: Some(1.5), rate: Some(0.8), memory: None },
        load: load(plan, plan.chats, ""),
        calls: 1,
    };
    findings.comparisons.push(scenario.run(plan.rounds, client, [&floor_target, &some_target], [None, Some(&mut expected)]).await?);
    drop(floor);
    if plan.million {
        let (many, mut expected_many) = filled(stage, &model, &Database::File(stage.file("stored-1m.db")), MANY).await?;
        scenario.title = format!("one-call turn, {MANY} calls stored beside {SOME}, {} chats", plan.chats);
        scenario.sides = ["10k calls", "1M calls"];
        scenario.bars = Bars { cpu: Some(FLAT), rate: None, memory: None };
        let targets = [&some_target, &werkruf_target(&many, None)];
        findings.comparisons.push(scenario.run(plan.rounds, client, targets, [Some(&mut expected), Some(&mut expected_many)]).await?);
        drop(many);
        findings.audit("stored-1m.db", &Database::File(stage.file("stored-1m.db")), &expected_many).await?;
    }
    drop((some, model));
    findings.audit("stored-10k.db", &Database::File(stage.file("stored-10k.db")), &expected).await
}

/// Starts a Werkruf on a database with so many stored calls.
#[expect(clippy::print_stderr, reason = "progress output")]
pub(super) async fn filled(stage: &Stage, model: &Child, database: &Database, calls: u64) -> Result<(Child, Expected), String> {
    eprintln!("stored: writing {calls} calls");
    // The first start of the server creates the schema and the users.
    drop(stage.werkruf(model, database)?);
    let expected = seed::calls(&SeedStore::open(database).await?, calls).await?;
    Ok((stage.werkruf(model, database)?, expected))
}
