//! `test_sleep`: waits. Tests use it to check deadlines, cancellation and the sharing of identical calls in flight.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, Failure, Invocation, Reply, Tool, ToolSpec};

pub(super) struct TestSleep;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// How long to wait, in milliseconds.
    ms: u64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Slept {
    slept_ms: u64,
}

impl Tool for TestSleep {
    type Args = Args;
    type Output = Slept;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("test_sleep", "Waits so many milliseconds. For tests of the server only.", Effect::Read)
    }

    // Ignores `cancel` on purpose: the call pipeline must stop a tool that does not react to it, and tests check that.
    async fn call(&self, args: Args, _invocation: Invocation) -> Result<Reply<Slept>, Failure> {
        tokio::time::sleep(Duration::from_millis(args.ms)).await;
        Ok(Reply::new(Slept { slept_ms: args.ms }))
    }
}
