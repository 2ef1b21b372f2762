//! One-call turns with a budget in force and metrics that are scraped, beside the same server without either.

use std::time::Duration;

use serde_json::json;

use super::{Findings, Plan, Scenario, load};
use crate::audit::Expected;
use crate::load::{Bars, Child};
use crate::stage::{Database, KEY, Stage, werkruf_target};

/// What one budget of model calls may cost on SQLite. Other units count tokens, and are published without a bar.
const MODEL_CALLS: f64 = 1.05;
/// Between two scrapes of the metrics; Prometheus usually scrapes far less often.
const SCRAPE_EVERY: Duration = Duration::from_secs(1);
/// No run reaches it.
const LIMIT: i64 = 1_000_000_000_000;

pub(super) async fn run(plan: &Plan, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let on_file = |name: &str| Database::File(stage.file(name));
    for (unit, bar) in [("model_calls", Some(MODEL_CALLS)), ("tokens", None)] {
        let names = [format!("without-{unit}.db"), format!("with-{unit}.db")];
        let databases = [on_file(&names[0]), on_file(&names[1])];
        compare(plan, stage, client, findings, (unit, "SQLite", bar), &databases).await?;
    }
    let Some(url) = &plan.postgres else { return Ok(()) };
    for unit in ["model_calls", "tokens"] {
        let databases = [stage.schema(url, &format!("without_{unit}")), stage.schema(url, &format!("with_{unit}"))];
        compare(plan, stage, client, findings, (unit, "PostgreSQL", None), &databases).await?;
    }
    Ok(())
}

async fn compare(
    plan: &Plan,
    stage: &Stage,
    client: &reqwest::Client,
    findings: &mut Findings,
    (unit, on, bar): (&'static str, &str, Option<f64>),
    databases: &[Database; 2],
) -> Result<(), String> {
    let model = stage.model(0)?;
    let (without, with) = (stage.werkruf(&model, &databases[0])?, stage.werkruf(&model, &databases[1])?);
    make(client, &with, unit).await?;
    let scenario = Scenario {
        name: "budgets",
        title: format!("one-call turn on {on}, metrics scraped every second and a budget of {unit}, {} chats", plan.chats),
        sides: ["neither", "both"],
        bars: Bars { cpu: bar, rate: None, memory: None },
        load: load(plan, plan.chats, ""),
        calls: 1,
    };
    let mut expected = [Expected::default(), Expected::default()];
    let [first, second] = &mut expected;
    let targets = [&werkruf_target(&without, None), &werkruf_target(&with, None)];
    let comparison = tokio::select! {
        done = scenario.run(plan.rounds, client, targets, [Some(first), Some(second)]) => done?,
        error = scrape(client, &with) => return Err(error),
    };
    findings.comparisons.push(comparison);
    drop((without, with, model));
    for (side, (database, expected)) in scenario.sides.iter().zip(databases.iter().zip(&expected)) {
        findings.audit(&format!("{on}, {side} ({unit})"), database, expected).await?;
    }
    Ok(())
}

/// Reads the metrics of the server until that fails; returns why.
async fn scrape(client: &reqwest::Client, server: &Child) -> String {
    loop {
        tokio::time::sleep(SCRAPE_EVERY).await;
        match client.get(format!("{}/metrics", server.url)).bearer_auth(KEY).send().await {
            Ok(response) if response.status().is_success() => drop(response.bytes().await),
            Ok(response) => return format!("the metrics were refused: {}", response.status()),
            Err(error) => return format!("the metrics could not be read: {error}"),
        }
    }
}

/// Makes a budget that is never used up.
async fn make(client: &reqwest::Client, server: &Child, unit: &str) -> Result<(), String> {
    let budget = json!({"scope": "tenant", "period": "month", "unit": unit, "limit": LIMIT});
    let request = client.post(format!("{}/api/budgets", server.url)).bearer_auth(KEY).body(budget.to_string());
    let response = request.header("content-type", "application/json").send().await.map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Err(format!("the budget was refused: {} {}", response.status(), response.text().await.unwrap_or_default()));
    }
    Ok(())
}
