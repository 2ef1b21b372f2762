//! Waiting for an identical call, in this process or in another one.

use std::sync::Arc;

use werkruf_contract::{CallStatus, Effect, ErrorCode, Failure, ToolErrorType, Uuid};
use werkruf_store::CLAIM_WINDOW;

use super::batch::CallBatch;
use super::in_flight::{Follower, Leader};
use super::outcome::{CallOutcome, canceled};
use crate::lease::POLL;
use crate::timer;

impl CallBatch<'_> {
    /// The leader's outcome; `None` when it left without one.
    pub(super) async fn followed(&self, mut follower: Follower) -> Option<CallOutcome> {
        let now = || self.scope.clock.now();
        let Some(own) = follower.remote.take() else {
            return follower.outcome().await.map(|outcome| outcome.shared(now()));
        };
        let outcome = self.followed_remotely(follower.leader_id, &own).await?;
        own.complete(&Arc::new(outcome.shared(now())));
        Some(outcome)
    }

    /// Waits for a call of another process. The owner of its turn will end it, whichever process that is by then. `None` where the call
    /// never became a row.
    async fn followed_remotely(&self, leader_id: Uuid, own: &Leader) -> Option<CallOutcome> {
        let scope = self.scope;
        let (key, job_id) = own.key();
        let (mut wakeups, claimed, deadline) = (scope.wakeup.listen(), timer::after(CLAIM_WINDOW), self.deadline());
        loop {
            match scope.records.call(scope.tenant_id(), leader_id).await {
                Ok(Some(row)) if row.status.is_terminal() => return Some(CallOutcome::stored(&row).shared(scope.clock.now())),
                Ok(None) if timer::left(claimed).is_zero() => return None,
                Ok(None) if self.leader_left(leader_id, key, job_id).await => return None,
                Ok(Some(_) | None) => {}
                Err(error) => tracing::warn!(job_id = %leader_id, %error, "a call of another process cannot be read; trying again"),
            }
            if timer::left(deadline).is_zero() {
                let failure = Failure::new(ToolErrorType::Timeout, ErrorCode::ToolTimeout, "").nothing_happened();
                let failure = failure.because("the identical call runs in another process");
                let late = CallOutcome::failed(failure, CallStatus::Timeout, Effect::Read, 0, scope.clock.now());
                return Some(late.with_message(&scope.texts));
            }
            wakeups.within(POLL.min(timer::left(deadline))).await;
        }
    }

    /// Whether this call has the key by now, and the other one never became a row. A repeated request leaves when another copy has the turn.
    async fn leader_left(&self, leader_id: Uuid, key: &str, job_id: Uuid) -> bool {
        let scope = self.scope;
        matches!(self.remote_leader(key, job_id).await, Ok(None))
            && matches!(scope.records.call(scope.tenant_id(), leader_id).await, Ok(None))
    }

    /// Canceled before anything left the process.
    pub(super) fn never_sent(&self) -> CallOutcome {
        let mut outcome = CallOutcome::refused(canceled().nothing_happened(), self.scope.clock.now());
        outcome.status = CallStatus::Canceled;
        outcome.with_message(&self.scope.texts)
    }
}
