//! `read_result`: returns a part of the result of an earlier call of the conversation. The model gets it after the beginning of a large result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, ErrorCode, Failure, Invocation, Reply, Tool, ToolSpec, Uuid, excerpt};

/// Room for the other fields beside the text.
const FIELDS_BYTES: usize = 256;

pub(crate) struct ReadResult;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// The `job_id` of the result
    job_id: Uuid,
    /// The byte to begin with: `next_offset` of the part before; 0 if missing
    offset: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Part {
    job_id: Uuid,
    tool: String,
    offset: usize,
    /// The length of the whole result.
    bytes: usize,
    /// Null after the last part.
    next_offset: Option<usize>,
    /// A part of the result's JSON.
    text: String,
}

impl Tool for ReadResult {
    type Args = Args;
    type Output = Part;

    fn spec(&self) -> ToolSpec {
        let description =
            "Reads on in a large result of this conversation. Pass the job_id and the next_offset that came with its beginning.";
        let mut spec = ToolSpec::new("read_result", description, Effect::Read);
        spec.reads_results = true;
        spec
    }

    async fn call(&self, Args { job_id, offset }: Args, invocation: Invocation) -> Result<Reply<Part>, Failure> {
        let refused = |message: String| Failure::validation(ErrorCode::InvalidArguments, message);
        let Some(result) = invocation.results.result(job_id).await? else {
            return Err(refused(format!("This conversation has no result of a call {job_id}.")));
        };
        let bytes = result.data.len();
        let offset = usize::try_from(offset.unwrap_or(0)).ok().filter(|offset| *offset < bytes);
        let Some(offset) = offset.map(|offset| result.data.floor_char_boundary(offset)) else {
            return Err(refused(format!("offset must be less than {bytes}, the length of the result.")));
        };
        let most = invocation.results.model_bytes().saturating_sub(FIELDS_BYTES);
        let text = excerpt(&result.data, offset, most).to_owned();
        let next_offset = Some(offset + text.len()).filter(|next| *next < bytes);
        let mut reply = Reply::new(Part { job_id, tool: result.tool, offset, bytes, next_offset, text });
        reply.untrusted = result.untrusted;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use werkruf_contract::{BoxFuture, Failure, Results, StoredResult, ToolObject, Typed, Uuid};

    use super::ReadResult;
    use crate::support::invocation;

    #[derive(Debug)]
    struct OneResult(Uuid, String);

    impl Results for OneResult {
        fn result(&self, job_id: Uuid) -> BoxFuture<'_, Result<Option<StoredResult>, Failure>> {
            let found = StoredResult { tool: "web".to_owned(), data: self.1.clone(), untrusted: true };
            Box::pin(std::future::ready(Ok((job_id == self.0).then_some(found))))
        }

        fn model_bytes(&self) -> usize {
            1024
        }
    }

    #[tokio::test]
    async fn the_parts_of_a_result_fit_and_miss_nothing() {
        let (id, data) = (Uuid::from_u128(7), format!("[{}]", "\"ä\\n\",".repeat(900)));
        let tool = Typed::new(ReadResult);
        let call = async |job_id: Uuid, offset: usize| {
            let results = Arc::new(OneResult(id, data.clone()));
            tool.call(json!({"job_id": job_id, "offset": offset}), werkruf_contract::Invocation { results, ..invocation() }).await
        };
        let (mut offset, mut whole) = (0, String::new());
        loop {
            let reply = call(id, offset).await.unwrap();
            assert!(reply.untrusted && reply.data.to_string().len() <= 1024, "{}", reply.data);
            assert_eq!((&reply.data["bytes"], &reply.data["offset"]), (&json!(data.len()), &json!(offset)));
            whole.push_str(reply.data["text"].as_str().unwrap());
            match reply.data["next_offset"].as_u64() {
                Some(next) => offset = usize::try_from(next).unwrap(),
                None => break,
            }
        }
        assert_eq!(whole, data);
        assert_eq!(call(id, 3).await.unwrap().data["offset"], 2, "a byte inside a character means that character");
        assert_eq!(call(id, data.len()).await.unwrap_err().code.to_string(), "invalid_arguments");
        assert_eq!(call(Uuid::nil(), 0).await.unwrap_err().code.to_string(), "invalid_arguments");
    }
}
