//! `test_bytes`: returns a text of a given size. Tests use it to check how large results are stored, streamed and passed to the model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, ErrorCode, Failure, Invocation, Reply, Tool, ToolSpec};

const MAX_BYTES: usize = 64 * 1024 * 1024;

pub(super) struct TestBytes;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// How many bytes of text to answer; at most 64 MiB.
    #[schemars(range(max = 67_108_864))]
    n: usize,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Text {
    text: String,
}

impl Tool for TestBytes {
    type Args = Args;
    type Output = Text;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("test_bytes", "Answers n bytes of text. For tests of the server only.", Effect::Read)
    }

    async fn call(&self, args: Args, _invocation: Invocation) -> Result<Reply<Text>, Failure> {
        if args.n > MAX_BYTES {
            return Err(Failure::validation(ErrorCode::InvalidArguments, format!("n must be at most {MAX_BYTES}.")));
        }
        Ok(Reply::new(Text { text: "x".repeat(args.n) }))
    }
}
