//! How a call's outcome looks to a client. Every failure of a call is a result of the tool, so that the model reads it.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value, json};
use werkruf_contract::{ToolOutput, Uuid};
use werkruf_runtime::{InvokeOutcome, NamedData};

use super::request::error_fields;
use crate::api::ApiError;

/// The result of a call. Only an admin reads the cause of an error.
pub(super) fn of_outcome(job_id: Uuid, outcome: InvokeOutcome, admin: bool) -> CallToolResult {
    match outcome {
        InvokeOutcome::Awaiting { approval_id } => awaiting(job_id, approval_id),
        InvokeOutcome::Done(output) => match *output {
            ToolOutput::Ok(result) => {
                let mut meta = job(job_id);
                meta.insert("werkruf/cache_hit".to_owned(), result.meta.cache_hit.unwrap_or(false).into());
                of_data(result.data, meta)
            }
            ToolOutput::Error(failed) => {
                let error = if admin { failed.error } else { failed.error.for_readers() };
                failure(&json!({"status": "error", "error": error}), job(job_id))
            }
        },
    }
}

/// A person has to decide first. The call goes on afterwards; the same key, the task or the resource of the call has its result.
fn awaiting(job_id: Uuid, approval_id: Uuid) -> CallToolResult {
    let message = format!("The call waits for an approval ({approval_id}) and has not run yet. Do not make it again.");
    let data = json!({"status": "awaiting_approval", "approval_id": approval_id, "job_id": job_id, "message": message});
    of_data(data, job(job_id))
}

/// The call was not made.
pub(super) fn of_refusal(error: &ApiError) -> CallToolResult {
    let mut fields = error_fields(error);
    if let Some(fields) = fields.as_object_mut() {
        fields.shift_insert(0, "status".to_owned(), "error".into());
    }
    failure(&fields, Map::new())
}

fn of_data(data: Value, meta: Map<String, Value>) -> CallToolResult {
    // Pictures and files are blocks of their own, and the data only names them.
    let (data, attached) = match NamedData::of(&data) {
        Some(named) => (named.data.clone(), named.blocks(&data)),
        None => (data, Vec::new()),
    };
    let text = match &data {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let attached = attached.into_iter().filter_map(|block| serde_json::from_value(block).ok());
    let mut result = CallToolResult::success(std::iter::once(ContentBlock::text(text)).chain(attached).collect());
    // Before 2026-07-28 structured content is an object.
    result.structured_content = Some(data).filter(Value::is_object);
    result.meta = Some(MetaObject(meta));
    result
}

/// An error has no structured content: version 1 of the TypeScript SDK checks that of errors too against the schema of the tool's data.
fn failure(fields: &Value, mut meta: Map<String, Value>) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(fields.to_string())]);
    meta.insert("werkruf/error".to_owned(), fields.get("error").cloned().unwrap_or_default());
    result.meta = Some(MetaObject(meta));
    result
}

fn job(job_id: Uuid) -> Map<String, Value> {
    Map::from_iter([("werkruf/job_id".to_owned(), Value::from(job_id.to_string()))])
}
