//! Waits, so that tests see deadlines, cancelling and joining at work.

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

#[derive(Serialize)]
pub(super) struct Slept {
    slept_ms: u64,
}

impl Tool for TestSleep {
    type Args = Args;
    type Output = Slept;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("test_sleep", "Waits so many milliseconds. For tests of the server only.", Effect::Read)
    }

    // Deliberately deaf to `cancel`: stopping a tool that does not listen is the corridor's duty, and tests look at it.
    async fn call(&self, args: Args, _invocation: Invocation) -> Result<Reply<Slept>, Failure> {
        tokio::time::sleep(Duration::from_millis(args.ms)).await;
        Ok(Reply::new(Slept { slept_ms: args.ms }))
    }
}
