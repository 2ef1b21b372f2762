//! Sends one call as often as its effect allows. Each attempt has a deadline, a panic stays inside the attempt, and a cancel ends it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;
use tokio_util::task::AbortOnDropHandle;
use werkruf_contract::{CallStatus, Cancel, Effect, ErrorCode, Failure, Invocation, Models, Reply, ToolErrorType, ToolSpec, Uuid};
use werkruf_llm::overdue;
use werkruf_store::{CallRetry, NewUsage, StoreError, UsageOwner, crash};

use super::batch::Execution;
use super::outcome::{CallOutcome, Success, canceled};
use super::progress::CallProgress;
use super::results::ConversationResults;
use super::scope::TurnScope;
use super::tool_usage::attempt_usage;
use crate::journal::CommitPoint;
use crate::model::{ModelAccess, ModelAccounts, ToolCall};
use crate::taint::is_untrusted;
use crate::timer;

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Sends until the call succeeded, may not be sent again, or its time is up. The row is `running` already. Returns the usage row of the last attempt
/// with the outcome, so that both are one commit.
pub(super) async fn attempt(scope: &Arc<TurnScope>, execution: &Execution) -> Result<(CallOutcome, Option<NewUsage>), StoreError> {
    let spec = execution.entry.spec();
    let mut attempt = execution.attempt;
    let mut started_at = scope.clock.now();
    // What the other side may still ask the call to wait, in all.
    let mut wait_left = spec.limit(scope.limits.tool());
    loop {
        let sent = send(scope, execution, attempt).await;
        let usage = attempt_usage(scope, execution, started_at, sent.as_ref().err().map(|(failure, _)| failure));
        let (failure, status) = match sent {
            Ok(success) => {
                let finished_at = scope.clock.now();
                let (status, untrusted) = (CallStatus::Succeeded, success.untrusted);
                return Ok((CallOutcome { status, result: Ok(success), attempt, cache_hit: false, finished_at, untrusted }, usage));
            }
            Err(failed) => failed,
        };
        let now = scope.clock.now();
        let pause = backoff(attempt, &failure, scope.clock.chance());
        let again = failure.kind.is_retryable()
            && !failure.is(ErrorCode::BudgetExceeded)
            && status != CallStatus::Canceled
            && attempt < spec.allowed_attempts()
            && failure.retry_after.is_none_or(|asked| asked < wait_left)
            && pause < timer::left(execution.deadline);
        if !again {
            let untrusted = is_untrusted(spec);
            return Ok((CallOutcome { untrusted, ..CallOutcome::failed(failure, status, spec.effect, attempt, now) }, usage));
        }
        wait_left = wait_left.saturating_sub(failure.retry_after.unwrap_or_default());
        if wait(pause, &execution.cancel).await.is_err() {
            // Between attempts nothing is in progress, so the outcome is known.
            let failure = canceled().nothing_happened();
            return Ok((CallOutcome::failed(failure, CallStatus::Canceled, spec.effect, attempt, scope.clock.now()), usage));
        }
        let next_started_at = scope.clock.now();
        let error = serde_json::to_string(&failure.into_detail(attempt)).unwrap_or_default();
        if let Some(usage) = usage {
            scope.journal.stage(usage);
        }
        scope.journal.stage(CallRetry { id: execution.job_id, attempt, started_at, finished_at: now, status, error, next_started_at });
        scope.journal.commit(CommitPoint::Retry).await?;
        attempt += 1;
        started_at = next_started_at;
    }
}

/// One attempt, in a task of its own, so that a tool that blocks or panics harms nothing else.
async fn send(scope: &Arc<TurnScope>, execution: &Execution, attempt: u32) -> Result<Success, (Failure, CallStatus)> {
    let spec = execution.entry.spec();
    let limit = spec.limit(scope.limits.tool());
    let deadline = timer::after(limit).earlier(execution.deadline);
    let _slot = match &execution.entry.slots {
        Some(slots) => match timeout_at(deadline.instant().into(), Arc::clone(slots).acquire_owned()).await {
            Ok(slot) => slot.ok(),
            Err(_) => return Err((timed_out(limit).nothing_happened(), CallStatus::Timeout)),
        },
        None => None,
    };
    let may_repeat = spec.effect != Effect::Once;
    if execution.cancel.is_raised() || !(may_repeat || scope.running.must_end(execution.job_id)) {
        return Err((canceled().nothing_happened(), CallStatus::Canceled));
    }
    let invocation = Invocation {
        context: Arc::clone(&execution.context),
        principal: Arc::clone(&execution.principal),
        grant: execution.grant,
        state: Arc::clone(&execution.state),
        deadline,
        cancel: execution.cancel.clone(),
        job_id: execution.job_id,
        turn_id: scope.turn_id,
        conversation_id: scope.conversation_id,
        attempt,
        idempotency_key: execution.idempotency_key.clone(),
        untrusted: execution.untrusted.clone(),
        models: models(scope, execution.job_id, execution.entry.spec()),
        results: Arc::new(ConversationResults {
            records: Arc::clone(&scope.records),
            tenant_id: scope.tenant_id(),
            conversation_id: scope.conversation_id,
            limit: scope.result_limit,
        }),
        progress: Arc::new(CallProgress::new(scope, &spec.name, execution.job_id)),
    };
    scope.require_lease().await;
    crash::point("before_send");
    let tool = Arc::clone(&execution.entry.tool);
    let args = execution.args.clone();
    let task = AbortOnDropHandle::new(scope.tasks.spawn(async move { tool.call(args, invocation).await }));
    let replied: Result<Reply, Failure> = tokio::select! {
        biased;
        joined = task => match joined {
            Ok(replied) => replied,
            Err(error) => Err(join_failure(&error)),
        },
        () = execution.cancel.raised() => return Err((canceled(), CallStatus::Canceled)),
        () = overdue(deadline) => return Err((timed_out(limit), CallStatus::Timeout)),
    };
    crash::point("tool_answered");
    replied.and_then(|reply| Success::of(reply, &execution.entry, &scope.setup)).map_err(|failure| {
        let failure = scope.setup.redaction.failure(failure);
        let status = match failure.kind {
            // A tool that sees the cancel signal may return before the select above does.
            _ if failure.is(ErrorCode::Canceled) => CallStatus::Canceled,
            ToolErrorType::Timeout => CallStatus::Timeout,
            _ => CallStatus::Failed,
        };
        (failure, status)
    })
}

/// Model access for a call. The usage of its requests is committed with the turn.
fn models(scope: &Arc<TurnScope>, job_id: Uuid, tool: &ToolSpec) -> Arc<dyn Models> {
    let owner = UsageOwner {
        tenant_id: scope.tenant_id(),
        user_id: scope.caller.principal.user_id.clone(),
        conversation_id: scope.conversation_id,
        turn_id: Some(scope.turn_id),
    };
    let accounts = ModelAccounts { prices: Arc::clone(&scope.setup.prices), ..scope.models.clone() };
    let journal = Arc::clone(scope);
    let stage = Arc::new(move |usage: NewUsage| journal.journal.stage(usage));
    let journal = Arc::clone(scope);
    let reserved = Arc::new(move || journal.journal.note_reserved_by_tool());
    let call = ToolCall { id: job_id, tool: tool.name.to_string(), stage, reserved, trace: scope.trace.clone() };
    Arc::new(ModelAccess::for_call(accounts, owner, call, scope.spender.clone(), Arc::clone(&scope.tokens)))
}

fn join_failure(error: &tokio::task::JoinError) -> Failure {
    if error.is_panic() { Failure::fatal(ErrorCode::ToolPanicked, "").because(error.to_string()) } else { canceled() }
}

fn timed_out(limit: Duration) -> Failure {
    Failure::new(ToolErrorType::Timeout, ErrorCode::ToolTimeout, "").because(format!("no answer within {} ms", limit.as_millis()))
}

/// What the other side asked for, else twice as long each time, with jitter so that many callers do not return at once.
fn backoff(attempt: u32, failure: &Failure, chance: f64) -> Duration {
    if let Some(asked) = failure.retry_after {
        return asked;
    }
    let longest = FIRST_BACKOFF.saturating_mul(1 << (attempt - 1).min(10)).min(LONGEST_BACKOFF);
    longest.mul_f64(0.5 + chance / 2.0)
}

async fn wait(pause: Duration, cancel: &Cancel) -> Result<(), ()> {
    tokio::select! {
        biased;
        () = cancel.raised() => Err(()),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}
