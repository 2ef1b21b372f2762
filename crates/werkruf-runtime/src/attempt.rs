//! One call, sent as often as its effect allows: each attempt has a deadline, a panic stays inside, cancel ends it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout_at;
use tokio_util::task::AbortOnDropHandle;
use werkruf_contract::{
    CallStatus, Cancel, Deadline, Failure, Invocation, Principal, Reply, Scope, State, ToolContext, ToolErrorType, Uuid,
};
use werkruf_llm::overdue;
use werkruf_store::{CallRetry, StoreError, crash};

use crate::ground::Ground;
use crate::outcome::{Ended, Success};
use crate::registry::Entry;
use crate::timer;

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// A call that may run.
pub(crate) struct Run {
    pub(crate) entry: Arc<Entry>,
    pub(crate) args: Value,
    pub(crate) grant: Scope,
    /// With the rights of now, not of when the turn began.
    pub(crate) principal: Arc<Principal>,
    pub(crate) job_id: Uuid,
    pub(crate) idempotency_key: String,
    pub(crate) context: Arc<ToolContext>,
    pub(crate) state: Arc<State>,
    /// Raised for this call alone, or for the whole turn.
    pub(crate) cancel: Cancel,
    pub(crate) deadline: Deadline,
    /// 1, or more where an earlier process had begun.
    pub(crate) attempt: u32,
}

/// Sends until it went well, may not be sent again, or time is up. The row is `running` already.
pub(crate) async fn attempt(ground: &Ground, run: &Run) -> Result<Ended, StoreError> {
    let spec = run.entry.spec();
    let mut attempt = run.attempt;
    let mut started_at = ground.clock.now();
    loop {
        let (failure, cause) = match send(ground, run, attempt).await {
            Ok(success) => {
                let finished_at = ground.clock.now();
                return Ok(Ended { status: CallStatus::Succeeded, result: Ok(success), attempt, cache_hit: false, finished_at });
            }
            Err(end) => end,
        };
        let now = ground.clock.now();
        let pause = backoff(attempt, &failure, ground.clock.chance());
        let again = failure.kind.is_retryable()
            && cause != CallStatus::Canceled
            && attempt < spec.allowed_attempts()
            && pause < timer::left(run.deadline);
        if !again {
            return Ok(Ended::failed(failure, cause, spec.effect, attempt, now));
        }
        if rest(pause, &run.cancel).await.is_err() {
            // Between attempts nothing is under way, so nothing can have happened that is not known.
            return Ok(Ended::failed(canceled().nothing_happened(), CallStatus::Canceled, spec.effect, attempt, ground.clock.now()));
        }
        let next_started_at = ground.clock.now();
        let error = serde_json::to_string(&failure.into_detail(attempt)).unwrap_or_default();
        let retry = CallRetry { id: run.job_id, attempt, started_at, finished_at: now, status: cause, error, next_started_at };
        let mut draft = ground.draft();
        draft.write.retries.push(retry);
        ground.commit(draft).await?;
        attempt += 1;
        started_at = next_started_at;
    }
}

/// One attempt, in a task of its own so that a tool that blocks or panics takes nothing else down.
async fn send(ground: &Ground, run: &Run, attempt: u32) -> Result<Success, (Failure, CallStatus)> {
    let spec = run.entry.spec();
    let limit = spec.timeout.min(ground.limits.tool());
    let deadline = timer::after(limit).earlier(run.deadline);
    let _slot = match &run.entry.slots {
        Some(slots) => match timeout_at(deadline.instant().into(), Arc::clone(slots).acquire_owned()).await {
            Ok(slot) => slot.ok(),
            Err(_) => return Err((timed_out(limit).nothing_happened(), CallStatus::Timeout)),
        },
        None => None,
    };
    if run.cancel.is_raised() {
        return Err((canceled().nothing_happened(), CallStatus::Canceled));
    }
    let invocation = Invocation {
        context: Arc::clone(&run.context),
        principal: Arc::clone(&run.principal),
        grant: run.grant,
        state: Arc::clone(&run.state),
        deadline,
        cancel: run.cancel.clone(),
        job_id: run.job_id,
        turn_id: ground.turn_id,
        conversation_id: ground.conversation_id,
        attempt,
        idempotency_key: run.idempotency_key.clone(),
    };
    ground.still_ours().await;
    crash::point("before_send");
    let tool = Arc::clone(&run.entry.tool);
    let args = run.args.clone();
    let task = AbortOnDropHandle::new(ground.tasks.spawn(async move { tool.call(args, invocation).await }));
    let answered: Result<Reply, Failure> = tokio::select! {
        biased;
        joined = task => match joined {
            Ok(answer) => answer,
            Err(error) => Err(broke(&error)),
        },
        () = run.cancel.raised() => return Err((canceled(), CallStatus::Canceled)),
        () = overdue(deadline) => return Err((timed_out(limit), CallStatus::Timeout)),
    };
    crash::point("tool_answered");
    let judged = answered.and_then(|reply| Success::of(reply, spec));
    judged.map_err(|failure| {
        let cause = match failure.kind {
            // A tool that hears the stop button may be quicker than we are.
            _ if failure.code == "canceled" => CallStatus::Canceled,
            ToolErrorType::Timeout => CallStatus::Timeout,
            _ => CallStatus::Failed,
        };
        (failure, cause)
    })
}

fn broke(error: &tokio::task::JoinError) -> Failure {
    if error.is_panic() { Failure::fatal("tool_panicked", "").because(error.to_string()) } else { canceled() }
}

fn timed_out(limit: Duration) -> Failure {
    Failure::new(ToolErrorType::Timeout, "tool_timeout", "").because(format!("no answer within {} ms", limit.as_millis()))
}

pub(crate) fn canceled() -> Failure {
    Failure::fatal("canceled", "")
}

/// What the other side asked for, else twice as long each time, spread so that many callers do not return at once.
fn backoff(attempt: u32, failure: &Failure, chance: f64) -> Duration {
    if let Some(asked) = failure.retry_after {
        return asked;
    }
    let longest = FIRST_BACKOFF.saturating_mul(1 << (attempt - 1).min(10)).min(LONGEST_BACKOFF);
    longest.mul_f64(0.5 + chance / 2.0)
}

async fn rest(pause: Duration, cancel: &Cancel) -> Result<(), ()> {
    tokio::select! {
        biased;
        () = cancel.raised() => Err(()),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}
