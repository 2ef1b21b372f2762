//! `tools/call`: the same call as `POST /api/tools/{name}/invoke`, recorded the same.
//!
//! Since 2026-07-28 a cut stream cannot be resumed: the client sends the request again. With `_meta["werkruf/idempotency-key"]` the second request
//! joins the call of the first one or gets its result. Without a key, the pipeline lets a call follow an identical one in flight, and a finished one
//! is a new call.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use rmcp::model::{CallToolRequestParams, CallToolResponse, ErrorData, ProgressNotificationParam, ProgressToken};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use werkruf_contract::{Cancel, Effect, ErrorCode, Progress, TRACEPARENT, ToolOutput, Uuid, hex};
use werkruf_runtime::{Idempotency, Invoke, InvokeOutcome, Refusal, StartedCall};

use super::request::McpRequest;
use super::{call_result, tasks};
use crate::api::body::KEY_LIMIT;
use crate::api::policy::Policy;
use crate::api::{ApiError, ApiState, approvals, context, replay, tools};

const IDEMPOTENCY_KEY: &str = "werkruf/idempotency-key";
const CONVERSATION_ID: &str = "werkruf/conversation-id";
/// How long a call that only reads continues while nobody waits for it: a client that lost its connection sends the request again.
const GRACE: Duration = Duration::from_secs(10);
/// Reports that may wait to be sent; a client that does not read misses some.
const REPORTS: usize = 32;

/// Makes a call and answers with its result. `canceled` is raised when the client cancels the request.
pub(super) async fn call(request: McpRequest, params: CallToolRequestParams, canceled: Cancel) -> Result<CallToolResponse, ErrorData> {
    let (api, identity) = (Arc::clone(&request.api), Arc::clone(&request.identity));
    let effect = match tools::find(&api, &identity, &params.name).await {
        Ok(entry) => entry.spec().effect,
        Err(error) if error.code() == "unknown_tool" => {
            return Err(ErrorData::invalid_params(format!("Unknown tool: {}", params.name), None));
        }
        Err(error) => return Ok(call_result::of_refusal(&error).into()),
    };
    let (reporter, mut reports) = mpsc::channel(REPORTS);
    let token = request.meta.get_progress_token();
    let invoke = match invoke(&request, params, token.is_some().then_some(reporter)) {
        Ok(invoke) => invoke,
        Err(error) => return Ok(call_result::of_refusal(&error).into()),
    };
    let call = WatchedCall {
        api: Arc::clone(&api),
        may_stop: effect == Effect::Read && invoke.idempotency.is_none(),
        canceled,
        left: request.left.clone(),
    };
    let held = request.body.held();
    let mut calling = std::pin::pin!(api.run_detached(async move {
        let _held = held;
        call.run(invoke).await
    }));
    let finished = loop {
        tokio::select! {
            biased;
            Some(report) = reports.recv(), if token.is_some() => notify(&request, token.as_ref(), report).await,
            finished = &mut calling => break finished,
        }
    };
    while let Ok(report) = reports.try_recv() {
        notify(&request, token.as_ref(), report).await;
    }
    let (job_id, outcome) = match finished.and_then(|called| called) {
        Ok(called) => called,
        Err(error) => return Ok(call_result::of_refusal(&error).into()),
    };
    if let (InvokeOutcome::Awaiting { approval_id }, true) = (&outcome, request.speaks_tasks) {
        return tasks::waiting(&request, job_id, *approval_id).await;
    }
    let result = call_result::of_outcome(job_id, outcome, identity.scopes.admin);
    request.count_answer(&result);
    Ok(result.into())
}

/// What the request asks for.
fn invoke(request: &McpRequest, params: CallToolRequestParams, reporter: Option<mpsc::Sender<Report>>) -> Result<Invoke, ApiError> {
    Policy::Invoke.check(&request.identity)?;
    let (tool, input) = (params.name.into_owned(), Value::Object(params.arguments.unwrap_or_default()));
    let conversation = request.meta_text(CONVERSATION_ID)?;
    let not_found = |_| ApiError::not_found("conversation");
    let conversation_id = conversation.map(|id| Uuid::parse_str(id).map_err(not_found)).transpose()?;
    let headers = with_trace(request);
    let trace_id = context::trace_id(&headers, None, None)?;
    Ok(Invoke {
        caller: request.identity.caller()?,
        context: context::context(&request.api, request.identity.tenant_id, &headers, trace_id)?,
        idempotency: idempotency(request.meta_text(IDEMPOTENCY_KEY)?, &tool, &input, conversation_id)?,
        tool,
        input,
        conversation_id,
        observer: reporter.map(|reporter| Arc::new(Reporter(reporter)) as Arc<dyn Progress>),
    })
}

/// The headers, with the caller's span where only `_meta` has it.
fn with_trace(request: &McpRequest) -> HeaderMap {
    let mut headers = request.headers.clone();
    let named = request.meta.get_traceparent().and_then(|parent| HeaderValue::from_str(parent).ok());
    if let (Some(parent), false) = (named, headers.contains_key(TRACEPARENT)) {
        headers.insert(TRACEPARENT, parent);
    }
    headers
}

/// The key, with a digest of what is called: the same key cannot mean another call.
fn idempotency(key: Option<&str>, tool: &str, input: &Value, conversation_id: Option<Uuid>) -> Result<Option<Idempotency>, ApiError> {
    let Some(key) = key else { return Ok(None) };
    if key.trim().is_empty() || key.len() > KEY_LIMIT {
        return Err(ApiError::invalid(format!("_meta[\"{IDEMPOTENCY_KEY}\"] takes 1 to {KEY_LIMIT} bytes.")));
    }
    let called = json!({"tool": tool, "arguments": input, "conversation_id": conversation_id});
    let canonical = serde_json_canonicalizer::to_vec(&called).map_err(|_| ApiError::invalid("The arguments cannot be written as JSON."))?;
    // Apart from the keys of `POST /api/tools/{name}/invoke`, whose digest is that of the body.
    Ok(Some(Idempotency {
        route: Idempotency::route_of_tool(tool),
        key: format!("mcp/{key}"),
        fingerprint: hex(&Sha256::digest(canonical)),
    }))
}

/// A report of a call.
struct Report {
    done: f64,
    total: Option<f64>,
    message: Option<String>,
}

/// Passes the reports of a call on to its request.
#[derive(Debug)]
struct Reporter(mpsc::Sender<Report>);

impl Progress for Reporter {
    fn report(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        let _ = self.0.try_send(Report { done, total, message: message.map(str::to_owned) });
    }
}

async fn notify(request: &McpRequest, token: Option<&ProgressToken>, report: Report) {
    let Some(token) = token else { return };
    let mut param = ProgressNotificationParam::new(token.clone(), report.done);
    (param.total, param.message) = (report.total, report.message);
    // A client that has left is noticed elsewhere.
    let _ = request.peer.notify_progress(param).await;
}

/// A call, and what ends the wait for it.
struct WatchedCall {
    api: Arc<ApiState>,
    /// Whether the call may be stopped when nobody waits for it any more.
    may_stop: bool,
    canceled: Cancel,
    left: CancellationToken,
}

impl WatchedCall {
    async fn run(self, invoke: Invoke) -> Result<(Uuid, InvokeOutcome), ApiError> {
        let tenant_id = invoke.caller.principal.tenant_id;
        let outcome = match self.api.app.runtime.start_call(invoke).await {
            Ok(started) => self.wait(tenant_id, started).await?,
            Err(Refusal::Duplicate { turn_id, same_body }) => return self.join(tenant_id, turn_id, same_body).await,
            Err(refusal) => return Err(refusal.into()),
        };
        self.earlier_approval(tenant_id, outcome).await
    }

    /// Waits for the outcome. Whoever closes the stream leaves the call alone, unless it only reads and nobody else waits for it: what has an effect
    /// goes on, and a request that is sent again finds it.
    async fn wait(&self, tenant_id: Uuid, started: StartedCall) -> Result<(Uuid, InvokeOutcome), ApiError> {
        let (runtime, job_id) = (&self.api.app.runtime, started.job_id);
        let mut outcome = std::pin::pin!(started.outcome());
        tokio::select! {
            biased;
            outcome = &mut outcome => return Ok((job_id, outcome?)),
            () = self.canceled.raised() => drop(runtime.withdraw_call(tenant_id, job_id).await?),
            () = self.nobody_waits() => drop(runtime.cancel_abandoned(tenant_id, job_id).await?),
        }
        Ok((job_id, outcome.await?))
    }

    async fn nobody_waits(&self) {
        self.left.cancelled().await;
        if self.may_stop {
            tokio::time::sleep(GRACE).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// The call of an earlier request with the same key: waits for it, or reads its result.
    async fn join(&self, tenant_id: Uuid, turn_id: Uuid, same_body: bool) -> Result<(Uuid, InvokeOutcome), ApiError> {
        let runtime = &self.api.app.runtime;
        if same_body {
            tokio::select! {
                biased;
                settled = runtime.settled(tenant_id, turn_id) => drop(settled?),
                () = self.canceled.raised() => {
                    if let Some(call) = replay::call_of_turn(&self.api, tenant_id, turn_id).await? {
                        runtime.withdraw_call(tenant_id, call.id).await?;
                    }
                    runtime.settled(tenant_id, turn_id).await?;
                }
            }
        }
        replay::invoke(&self.api, tenant_id, turn_id, same_body).await
    }

    /// The identical call waits for an approval already: its approval is named.
    async fn earlier_approval(&self, tenant_id: Uuid, (job_id, outcome): (Uuid, InvokeOutcome)) -> Result<(Uuid, InvokeOutcome), ApiError> {
        let Some(earlier) = pending_job(&outcome) else { return Ok((job_id, outcome)) };
        let Some(call) = self.api.app.records().call(tenant_id, earlier).await? else { return Ok((job_id, outcome)) };
        let approval = approvals::pending_approval_of_turn(self.api.app.approvals(), tenant_id, call.turn_id).await?;
        Ok(approval.map_or((job_id, outcome), |approval| (earlier, InvokeOutcome::Awaiting { approval_id: approval.id })))
    }
}

/// The call whose approval is pending, if that is why this one was refused.
fn pending_job(outcome: &InvokeOutcome) -> Option<Uuid> {
    let InvokeOutcome::Done(output) = outcome else { return None };
    let ToolOutput::Error(failed) = &**output else { return None };
    if !failed.error.code.as_deref().is_some_and(|code| ErrorCode::ApprovalPending.is(code)) {
        return None;
    }
    failed.error.details.as_ref().and_then(|details: &Map<String, Value>| details.get("earlier_job_id")?.as_str()?.parse().ok())
}
