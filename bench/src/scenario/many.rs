//! A thousand concurrent chats with a slow model: the memory of waiting turns. The processes are new, so that their peak memory is
//! that of this load. Every turn must be answered.

use std::time::Duration;

use super::{Findings, Plan, Scenario};
use crate::audit::Expected;
use crate::load::{Bars, Load};
use crate::stage::{Database, Stage, floor_target, werkruf_target};

const CHATS: usize = 1000;
const LATENCY_MS: u64 = 300;

pub(super) async fn run(plan: &Plan, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    let model = stage.model(LATENCY_MS)?;
    let floor = stage.floor(&model, &stage.file("floor-thousand.db"))?;
    let werkruf = stage.werkruf(&model, &Database::File(stage.file("thousand.db")))?;
    let window = Duration::from_secs(plan.seconds * 2);
    let scenario = Scenario {
        name: "thousand",
        title: format!("{CHATS} chats at once, model latency {LATENCY_MS} ms"),
        sides: ["floor", "werkruf"],
        bars: Bars { cpu: None, rate: None, memory: Some(120.0) },
        load: Load { chats: CHATS, warm_up: Duration::from_secs(3), window, shape: "" },
        calls: 1,
    };
    let mut expected = Expected::default();
    let targets = [&floor_target(&floor, None), &werkruf_target(&werkruf, None)];
    let rounds = plan.rounds.div_ceil(2);
    findings.comparisons.push(scenario.run(rounds, client, targets, [None, Some(&mut expected)]).await?);
    drop((floor, werkruf, model));
    findings.audit("thousand.db", &Database::File(stage.file("thousand.db")), &expected).await
}
