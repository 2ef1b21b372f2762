//! The stages before a call runs, from top to bottom: `find → parse and repair → validate → permit → dedupe → approve`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use werkruf_contract::{CallStatus, Deadline, Effect, ErrorCode, Failure, Principal, Runner, Scope, ToolContext, Uuid};
use werkruf_store::{CallRow, StoreError};

use super::arguments;
use super::batch::{CallBatch, CallPlan, Execution, Halt, HistorySlot, PendingApproval, PreparedCall, awaits_approval};
use super::dedupe::Deduped;
use super::outcome::CallOutcome;
use super::record::{apply_outcome, call_row, display_name};
use super::request::{Arguments, CallRequest};
use crate::registry::Entry;
use crate::stored::object;
use crate::timer;

impl CallBatch<'_> {
    /// Decides on each requested call. Nothing is written yet.
    pub(crate) async fn prepare(&self, requests: Vec<CallRequest>) -> Result<Vec<PreparedCall>, StoreError> {
        let scope = self.scope;
        let principal = self.principal().await?;
        let mut running = 0;
        let mut prepared = Vec::with_capacity(requests.len());
        let taint = self.taint.to_column();
        for request in requests {
            let mut row = call_row(scope, self.step, self.context, &request);
            row.taint = request.taint.clone().or_else(|| taint.clone());
            if request.is_of_provider() {
                (row.runner, row.effect) = (Runner::Provider, Effect::Once);
            }
            let plan = match self.decide(&request, &mut row, principal.as_ref()).await {
                Ok(CallPlan::Follow(follower)) if awaits_approval(&prepared, follower.leader_id) => {
                    row.dedupe_of = Some(follower.leader_id);
                    CallPlan::AwaitApproval(Box::new(PendingApproval::copy()))
                }
                Ok(plan) => plan,
                Err(Halt::Refused(failure)) => {
                    CallPlan::Finished(Box::new(CallOutcome::refused(*failure, scope.clock.now()).with_message(&scope.texts)))
                }
                Err(Halt::Store(error)) => return Err(error),
            };
            match &plan {
                CallPlan::Finished(outcome) => apply_outcome(&mut row, outcome),
                CallPlan::Follow(follower) => row.dedupe_of = Some(follower.leader_id),
                CallPlan::Execute(..) if running < scope.limits.parallel => {
                    running += 1;
                    row.status = CallStatus::Running;
                    row.attempt = 1;
                    row.started_at = Some(row.created_at);
                }
                CallPlan::Execute(..) | CallPlan::AwaitApproval(_) | CallPlan::Grant => {}
            }
            let slot = request.history_id.map(|id| HistorySlot { id, has_placeholder: false });
            prepared.push(PreparedCall { row, slot, plan });
        }
        Ok(prepared)
    }

    async fn decide(&self, request: &CallRequest, row: &mut CallRow, principal: Option<&Arc<Principal>>) -> Result<CallPlan, Halt> {
        if let Some(failure) = request.refused.clone() {
            return Err(failure.into());
        }
        if request.is_of_provider() {
            return Ok(self.ask_for_provider(row, request.server_label.as_deref())?);
        }
        let entry = self.find(&request.name)?;
        row.effect = entry.spec().effect;
        let args = self.parse(request, entry, row)?;
        let grant = self.permit(entry, &args, principal, row)?;
        let leader = match self.dedupe(entry, &args, row, principal).await? {
            Deduped::Finished(outcome) => return Ok(CallPlan::Finished(outcome)),
            Deduped::Follow(follower) => return Ok(CallPlan::Follow(follower)),
            Deduped::Lead(leader) => leader,
        };
        row.idempotency_key = Some(request.idempotency_key.clone().unwrap_or_else(|| row.id.to_string()));
        match self.approve(entry, row, None)? {
            Some(CallPlan::AwaitApproval(mut pending)) => {
                pending.leader = Some(leader);
                Ok(CallPlan::AwaitApproval(pending))
            }
            Some(plan) => Ok(plan),
            None => {
                let context = self.call_context(row.id, row.idempotency_key.clone());
                Ok(CallPlan::Execute(Box::new(self.execution(entry, args, grant, principal, row, context)), leader))
            }
        }
    }

    /// The user with the rights of now; `None` when the user is gone.
    pub(super) async fn principal(&self) -> Result<Option<Arc<Principal>>, StoreError> {
        let scope = self.scope;
        scope.people.principal(scope.tenant_id(), scope.caller.principal.user_id.clone()).await
    }

    pub(super) fn find(&self, name: &str) -> Result<&Arc<Entry>, Failure> {
        self.scope.setup.registry.find_for(self.scope.caller.principal.tenant(), name).ok_or_else(|| {
            let name = display_name(name);
            Failure::validation(ErrorCode::UnknownTool, format!("There is no tool named \"{name}\". Use only the tools you were given."))
        })
    }

    /// The arguments as they will run. Repairs are written into the row.
    fn parse(&self, request: &CallRequest, entry: &Entry, row: &mut CallRow) -> Result<Value, Failure> {
        let parsed = match &request.arguments {
            Arguments::Raw(raw) => arguments::parse(raw, entry)?,
            Arguments::Given(value) => arguments::check(value.clone(), Vec::new(), entry)?,
        };
        if !parsed.repairs.is_empty() {
            row.repairs = serde_json::to_string(&parsed.repairs).ok();
        }
        row.request = Some(parsed.args.to_string());
        self.scope.debug("llm_tool_call_arguments", || {
            object(json!({"tool": request.name, "job_id": row.id, "raw": row.raw_arguments, "arguments": parsed.args, "repairs": parsed.repairs}))
        });
        Ok(parsed.args)
    }

    /// A call that passed every stage.
    pub(super) fn execution(
        &self,
        entry: &Arc<Entry>,
        args: Value,
        grant: Scope,
        principal: Option<&Arc<Principal>>,
        row: &CallRow,
        mut context: ToolContext,
    ) -> Execution {
        self.scope.trace.enter_call(&mut context, row.id);
        Execution {
            entry: Arc::clone(entry),
            args,
            grant,
            principal: Arc::clone(principal.unwrap_or(&self.scope.caller.principal)),
            job_id: row.id,
            idempotency_key: row.idempotency_key.clone().unwrap_or_else(|| row.id.to_string()),
            untrusted: row.taint.as_deref().map(Arc::from),
            context: Arc::new(context),
            state: Arc::clone(self.state),
            cancel: self.scope.running.register_call(row.id),
            deadline: self.deadline(),
            attempt: row.attempt.max(1),
        }
    }

    pub(super) fn deadline(&self) -> Deadline {
        let turn = self.scope.deadline;
        self.context.timeouts_ms.map_or(turn, |ms| turn.earlier(timer::after(Duration::from_millis(ms.get()))))
    }

    fn call_context(&self, job_id: Uuid, key: Option<String>) -> ToolContext {
        let mut context = self.context.clone();
        context.invocation_id = job_id;
        context.now_iso = self.scope.clock.now();
        context.idempotency_key = key;
        context
    }
}
