//! The extension `tasks`: a call that waits for an approval is a task, which the client asks for until it has ended. A task is a recorded call, and
//! its id is the call's id: any process knows it, also after a restart.

use rmcp::model::{
    CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ErrorData, GetTaskResult, JsonObject, MetaObject, Task, TaskPayload,
    TaskStatus,
};
use serde_json::{Map, Value};
use werkruf_contract::{CallStatus, Uuid};
use werkruf_runtime::{InvokeOutcome, output_of};
use werkruf_store::{CallRow, TurnKind};

use super::call_result;
use super::request::{McpRequest, protocol_error};
use crate::api::policy::Policy;
use crate::api::{ApiError, lookup};

/// How long a client waits between two questions. A person decides, not a program.
const POLL_MS: u64 = 5_000;

/// The task of a call that waits for an approval.
pub(super) async fn waiting(request: &McpRequest, job_id: Uuid, approval_id: Uuid) -> Result<CallToolResponse, ErrorData> {
    let call = find(request, &job_id.to_string()).await?;
    let task = task(&call).with_status_message(format!("The call waits for an approval ({approval_id})."));
    let meta = Map::from_iter([
        ("werkruf/approval_id".to_owned(), Value::from(approval_id.to_string())),
        ("werkruf/job_id".to_owned(), Value::from(job_id.to_string())),
    ]);
    Ok(CallToolResponse::Task(CreateTaskResult::new(task).with_meta(MetaObject(meta))))
}

/// `tasks/get`.
pub(super) async fn get(request: &McpRequest, task_id: &str) -> Result<GetTaskResult, ErrorData> {
    // Like the same call with its key, or like every way to read a call.
    Policy::Invoke.check(&request.identity).or_else(|_| Policy::Read.check(&request.identity)).map_err(|error| protocol_error(&error))?;
    let call = find(request, task_id).await?;
    let payload = match call.status {
        CallStatus::Queued | CallStatus::Running => TaskPayload::Working,
        CallStatus::Canceled => TaskPayload::Cancelled,
        // A failed call has a result too: it says why.
        CallStatus::Succeeded | CallStatus::Failed | CallStatus::Timeout => {
            let outcome = InvokeOutcome::Done(Box::new(output_of(&call)));
            TaskPayload::Completed { result: fields(&call_result::of_outcome(call.id, outcome, request.identity.scopes.admin))? }
        }
    };
    let result = GetTaskResult::new(DetailedTask::new(task(&call), payload));
    request.reserve_answer(&result)?;
    Ok(result)
}

/// `tasks/cancel`.
pub(super) async fn cancel(request: &McpRequest, task_id: &str) -> Result<(), ErrorData> {
    Policy::StopCall.check(&request.identity).map_err(|error| protocol_error(&error))?;
    let call = find(request, task_id).await?;
    let canceled = request.api.app.runtime.cancel_call(call.tenant_id, call.id).await;
    canceled.map(|_| ()).map_err(|refusal| protocol_error(&ApiError::from(refusal)))
}

/// A direct call that the caller may see. Calls of chats are no tasks: a key for tools alone does not read them.
async fn find(request: &McpRequest, task_id: &str) -> Result<CallRow, ErrorData> {
    let unknown = || ErrorData::invalid_params("There is no such task.", None);
    let id = Uuid::parse_str(task_id).map_err(|_| unknown())?;
    match lookup::call(&request.api, &request.identity, &id.to_string()).await {
        Ok((call, turn)) if turn.kind == TurnKind::Invoke.as_str() => Ok(call),
        Ok(_) => Err(unknown()),
        Err(error) if error.status().is_client_error() => Err(unknown()),
        Err(error) => Err(protocol_error(&error)),
    }
}

fn task(call: &CallRow) -> Task {
    let status = match call.status {
        CallStatus::Queued | CallStatus::Running => TaskStatus::Working,
        CallStatus::Canceled => TaskStatus::Cancelled,
        CallStatus::Succeeded | CallStatus::Failed | CallStatus::Timeout => TaskStatus::Completed,
    };
    Task::new(call.id.to_string(), status, call.created_at.to_string(), call.updated_at.to_string()).with_poll_interval_ms(POLL_MS)
}

fn fields(result: &CallToolResult) -> Result<JsonObject, ErrorData> {
    match serde_json::to_value(result) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(ErrorData::internal_error("the result cannot be written as JSON", None)),
    }
}
