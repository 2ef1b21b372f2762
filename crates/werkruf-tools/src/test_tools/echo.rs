//! `test_echo`: returns its arguments. Tests use it to check that arguments arrive unchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{Effect, Failure, Invocation, Reply, Tool, ToolSpec};

pub(super) struct TestEcho;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Any JSON value; it comes back unchanged.
    value: Value,
}

impl Tool for TestEcho {
    type Args = Args;
    type Output = Args;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("test_echo", "Answers the value it is given. For tests of the server only.", Effect::Read)
    }

    async fn call(&self, args: Args, _invocation: Invocation) -> Result<Reply<Args>, Failure> {
        Ok(Reply::new(args))
    }
}
