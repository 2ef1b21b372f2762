//! `test_panic`: panics. Tests use it to check that a panicking tool does not affect other calls or the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, Failure, Invocation, Reply, Tool, ToolSpec};

pub(super) struct TestPanic;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

impl Tool for TestPanic {
    type Args = Args;
    type Output = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("test_panic", "Panics. For tests of the server only.", Effect::Read)
    }

    #[expect(clippy::panic, reason = "panicking is what this tool is for")]
    async fn call(&self, _args: Args, _invocation: Invocation) -> Result<Reply<()>, Failure> {
        panic!("test_panic was called")
    }
}
