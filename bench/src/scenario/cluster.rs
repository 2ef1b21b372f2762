//! One-call turns on PostgreSQL: compared with SQLite, three servers compared with one, and on a database with many stored calls.
//!
//! CPU is that of the servers alone, without the database, which may run on another machine.

use super::stored::{MANY, SOME, filled};
use super::{Findings, Plan, Scenario, load};
use crate::audit::Expected;
use crate::load::{Bars, Child};
use crate::stage::{Database, Stage, cluster_target, werkruf_target};

const REPLICAS: usize = 3;
/// The allowed ratio between ten thousand stored calls and a million.
const FLAT: f64 = 1.2;

pub(super) async fn run(plan: &Plan, url: &str, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    if plan.wants("postgres") {
        beside_sqlite(plan, url, stage, client, findings).await?;
    }
    if plan.wants("replicas") {
        replicas(plan, url, stage, client, findings).await?;
    }
    if plan.million && plan.wants("postgres") {
        many_calls(plan, url, stage, client, findings).await?;
    }
    Ok(())
}

async fn beside_sqlite(plan: &Plan, url: &str, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let model = stage.model(0)?;
    let (file, schema) = (Database::File(stage.file("beside.db")), stage.schema(url, "one"));
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
    findings.audit("beside.db", &file, &of_sqlite).await?;
    findings.audit("postgres", &schema, &of_postgres).await
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
    let targets = [&werkruf_target(&one, None), &cluster_target(&three, None)];
    findings.comparisons.push(scenario.run(plan.rounds, client, targets, [Some(&mut of_one), Some(&mut of_three)]).await?);
    drop((one, three, model));
    findings.audit("1 replica", &alone, &of_one).await?;
    findings.audit("3 replicas", &shared, &of_three).await
}

async fn many_calls(plan: &Plan, url: &str, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let model = stage.model(0)?;
    let (some_database, many_database) = (stage.schema(url, "some"), stage.schema(url, "many"));
    let (some, mut of_some) = filled(stage, &model, &some_database, SOME).await?;
    let (many, mut of_many) = filled(stage, &model, &many_database, MANY).await?;
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
    findings.audit("10k calls", &some_database, &of_some).await?;
    findings.audit("1M calls", &many_database, &of_many).await
}
