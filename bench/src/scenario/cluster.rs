//! The same one-call turns on PostgreSQL: beside SQLite, with three servers beside one, and on a registry that is already full.
//!
//! CPU is that of the servers alone; the database's own is told apart, since it may stand on another machine.

use super::stored::{MANY, SOME, filled};
use super::{Findings, Plan, Scenario, load};
use crate::audit::Expected;
use crate::load::{Bars, Child};
use crate::stage::{Place, Stage, fleet_target, werkruf_target};

const REPLICAS: usize = 3;
/// What counts as flat between ten thousand calls and a million.
const FLAT: f64 = 1.2;

pub(super) async fn run(plan: &Plan, url: &str, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    if plan.wants("postgres") {
        beside_sqlite(plan, url, stage, client, findings).await?;
    }
    if plan.wants("replicas") {
        replicas(plan, url, stage, client, findings).await?;
    }
    if plan.million && plan.wants("postgres") {
        full(plan, url, stage, client, findings).await?;
    }
    Ok(())
}

async fn beside_sqlite(plan: &Plan, url: &str, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let model = stage.model(0)?;
    let (file, schema) = (Place::File(stage.file("beside.db")), stage.schema(url, "one"));
    let (sqlite, postgres) = (stage.werkruf(&model, &file)?, stage.werkruf(&model, &schema)?);
    let scenario = Scenario {
        name: "postgres",
        title: format!("one-call turn on PostgreSQL beside SQLite, {} chats", plan.chats),
        sides: ["sqlite", "postgres"],
        bars: Bars::default(),
        load: load(plan, plan.chats, ""),
        calls: 1,
    };
    let (mut of_sqlite, mut of_postgres) = (Expected::default(), Expected::default());
    let targets = [&werkruf_target(&sqlite, None), &werkruf_target(&postgres, None)];
    findings.comparisons.push(scenario.run(plan.rounds, client, targets, [Some(&mut of_sqlite), Some(&mut of_postgres)]).await?);
    drop((sqlite, postgres, model));
    findings.judge("beside.db", &file, &of_sqlite).await?;
    findings.judge("postgres", &schema, &of_postgres).await
}

async fn replicas(plan: &Plan, url: &str, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let model = stage.model(0)?;
    let (alone, shared) = (stage.schema(url, "alone"), stage.schema(url, "shared"));
    let one = stage.werkruf(&model, &alone)?;
    let three = (0..REPLICAS).map(|_| stage.werkruf(&model, &shared)).collect::<Result<Vec<Child>, String>>()?;
    let scenario = Scenario {
        name: "replicas",
        title: format!("one-call turn, {REPLICAS} servers on one PostgreSQL beside one, {} chats", plan.chats),
        sides: ["1 replica", "3 replicas"],
        bars: Bars::default(),
        load: load(plan, plan.chats, ""),
        calls: 1,
    };
    let (mut of_one, mut of_three) = (Expected::default(), Expected::default());
    let targets = [&werkruf_target(&one, None), &fleet_target(&three, None)];
    findings.comparisons.push(scenario.run(plan.rounds, client, targets, [Some(&mut of_one), Some(&mut of_three)]).await?);
    drop((one, three, model));
    findings.judge("1 replica", &alone, &of_one).await?;
    findings.judge("3 replicas", &shared, &of_three).await
}

async fn full(plan: &Plan, url: &str, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let model = stage.model(0)?;
    let (some_place, many_place) = (stage.schema(url, "some"), stage.schema(url, "many"));
    let (some, mut of_some) = filled(stage, &model, &some_place, SOME).await?;
    let (many, mut of_many) = filled(stage, &model, &many_place, MANY).await?;
    let scenario = Scenario {
        name: "postgres",
        title: format!("one-call turn on PostgreSQL, {MANY} calls stored beside {SOME}, {} chats", plan.chats),
        sides: ["10k calls", "1M calls"],
        bars: Bars { cpu: Some(FLAT), rate: Some(1.0 / FLAT), memory: None },
        load: load(plan, plan.chats, ""),
        calls: 1,
    };
    let targets = [&werkruf_target(&some, None), &werkruf_target(&many, None)];
    findings.comparisons.push(scenario.run(plan.rounds, client, targets, [Some(&mut of_some), Some(&mut of_many)]).await?);
    drop((some, many, model));
    findings.judge("10k calls", &some_place, &of_some).await?;
    findings.judge("1M calls", &many_place, &of_many).await
}
