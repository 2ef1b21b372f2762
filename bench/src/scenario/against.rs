//! Turns of this program beside another build of it, such as the one before a change.

use std::path::Path;

use super::{Findings, Plan, Scenario, turns};
use crate::audit::{Expected, drop_schema};
use crate::load::Bars;
use crate::stage::{Database, Stage, werkruf_target};

const SIDES: [&str; 2] = ["other", "this"];

/// Both builds have a database of their own, because their schemas may differ. Only the rows of this program are audited.
pub(super) async fn run(plan: &Plan, other: &Path, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let files = SIDES.map(|side| Database::File(stage.file(&format!("{side}.db"))));
    compare(plan, other, stage, client, findings, ("SQLite", files)).await?;
    if let Some(url) = &plan.postgres {
        let schemas = SIDES.map(|side| stage.schema(url, side));
        compare(plan, other, stage, client, findings, ("PostgreSQL", schemas)).await?;
    }
    Ok(())
}

async fn compare(
    plan: &Plan,
    other: &Path,
    stage: &Stage,
    client: &reqwest::Client,
    findings: &mut Findings,
    (on, databases): (&str, [Database; 2]),
) -> Result<(), String> {
    let model = stage.model(0)?;
    let (before, this) = (stage.werkruf_from(other, &model, &databases[0], &[])?, stage.werkruf(&model, &databases[1])?);
    let targets = [&werkruf_target(&before, None), &werkruf_target(&this, None)];
    let mut expected = Expected::default();
    for scenario in turns::short(plan).into_iter().filter(|scenario| plan.wants(scenario.name)) {
        let title = format!("{}, on {on}", scenario.title);
        let scenario = Scenario { title, sides: SIDES, bars: Bars::default(), ..scenario };
        findings.comparisons.push(scenario.run(plan.rounds, client, targets, [None, Some(&mut expected)]).await?);
    }
    drop((before, this, model));
    drop_schema(&databases[0]).await?;
    findings.audit(&format!("{on}, this program"), &databases[1], &expected).await
}
