//! `test_tool_with_progress`: says how far it is. The conformance suite of the Model Context Protocol calls a tool of this name.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, Failure, Invocation, Reply, Tool, ToolSpec};

const TOTAL: f64 = 100.0;

pub(super) struct TestProgress;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// How long each of the two halves takes, in milliseconds.
    #[serde(default = "default_ms")]
    ms: u64,
}

const fn default_ms() -> u64 {
    100
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Done {
    text: String,
}

impl Tool for TestProgress {
    type Args = Args;
    type Output = Done;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("test_tool_with_progress", "Says how far it is. For tests of the server only.", Effect::Read)
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Done>, Failure> {
        let pause = Duration::from_millis(args.ms);
        invocation.progress.report(0.0, Some(TOTAL), Some("started"));
        tokio::time::sleep(pause).await;
        invocation.progress.report(TOTAL / 2.0, Some(TOTAL), Some("half done"));
        tokio::time::sleep(pause).await;
        invocation.progress.report(TOTAL, Some(TOTAL), Some("done"));
        Ok(Reply::new(Done { text: "done".to_owned() }))
    }
}
