//! The stages after commit B: calls run, at most so many at once, and their outcomes are recorded as they come. Siblings never wait for one
//! another's record, and no call waits for an approval here. The last outcomes stay staged, so that they are committed together with what the
//! turn does next.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::json;
use werkruf_contract::{CallStatus, Principal, Uuid};
use werkruf_store::{CallRow, NewUsage, StoreError};

use super::approval::stage_approval;
use super::attempt::attempt;
use super::batch::{
    BatchResult, CallBatch, CallPlan, Execution, FinishedCall, GrantedCall, HistorySlot, PendingApproval, PreparedCall, WaitingCall,
};
use super::dedupe::approval_pending;
use super::in_flight::{Follower, Leader};
use super::outcome::CallOutcome;
use super::record::{finish_call, stage_outcome, start};
use super::request::CallRequest;
use super::state_patch::PatchedState;
use super::tool_usage::lost_attempt;
use crate::journal::CommitPoint;
use crate::stored::object;

/// A call that has its outcome.
struct Completed {
    /// Its index in the batch.
    at: usize,
    outcome: Arc<CallOutcome>,
    /// Where identical calls wait for it.
    leader: Option<Leader>,
    /// The usage row of its last attempt.
    usage: Option<NewUsage>,
}

/// The calls of a batch that run or wait to run.
struct Progress<'a> {
    rows: Vec<(CallRow, Option<HistorySlot>)>,
    outcomes: Vec<Option<Arc<CallOutcome>>>,
    /// Executions and followers in progress.
    futures: FuturesUnordered<BoxFuture<'a, Result<Completed, StoreError>>>,
    queued: VecDeque<(usize, Box<Execution>, Leader)>,
    /// Calls whose row says `running` and that have no outcome yet.
    running: usize,
    completed: Vec<Completed>,
    state: PatchedState<'a>,
}

impl CallBatch<'_> {
    /// Runs a batch to its end.
    pub(crate) async fn run(&self, prepared: Vec<PreparedCall>) -> Result<BatchResult, StoreError> {
        let (mut progress, waiting, granted) = self.sort(prepared);
        loop {
            let waited = self.next_outcomes(&mut progress).await?;
            // The rights were read when the calls were prepared.
            if waited && !progress.queued.is_empty() {
                let principal = self.principal().await?;
                self.renew_rights(&mut progress, principal.as_ref());
            }
            let starting = self.stage_round(&mut progress);
            if progress.outcomes.iter().all(Option::is_some) {
                let Progress { rows, outcomes, state, .. } = progress;
                // Exactly as large as needed: the turn keeps the list, and a row is large.
                let mut finished = Vec::with_capacity(rows.len());
                let ended = rows.into_iter().zip(outcomes);
                finished.extend(ended.filter_map(|((row, slot), outcome)| Some(FinishedCall { row, outcome: outcome?, slot })));
                return Ok(BatchResult { finished, waiting, granted, state: state.into_changed() });
            }
            self.scope.journal.commit(CommitPoint::Outcomes).await?;
            for (at, execution, leader) in starting {
                progress.futures.push(self.execute(at, execution, leader).boxed());
            }
        }
    }

    /// Sorts calls by what happens to them, and starts those that may start.
    fn sort(&self, prepared: Vec<PreparedCall>) -> (Progress<'_>, Vec<WaitingCall>, Vec<GrantedCall>) {
        let mut progress = Progress {
            rows: Vec::with_capacity(prepared.len()),
            outcomes: Vec::new(),
            futures: FuturesUnordered::new(),
            queued: VecDeque::new(),
            running: 0,
            completed: Vec::new(),
            state: PatchedState::new(self.state),
        };
        let (mut waiting, mut granted) = (Vec::new(), Vec::new());
        for PreparedCall { row, slot, plan } in prepared {
            let at = progress.rows.len();
            match plan {
                CallPlan::Finished(outcome) => {
                    // A call that an earlier process sent, and that is not sent again.
                    let usage = if row.status == CallStatus::Running { lost_attempt(self.scope, &row) } else { None };
                    progress.completed.push(Completed { at, outcome: Arc::from(outcome), leader: None, usage });
                }
                CallPlan::Follow(follower) => progress.futures.push(self.follow(at, row.id, follower).boxed()),
                CallPlan::AwaitApproval(pending) => {
                    waiting.push(self.wait(row, slot, *pending));
                    continue;
                }
                CallPlan::Grant => {
                    granted.push(GrantedCall { row, slot });
                    continue;
                }
                CallPlan::Execute(execution, leader) if row.status == CallStatus::Running => {
                    progress.futures.push(self.execute(at, execution, leader).boxed());
                }
                CallPlan::Execute(execution, leader) => progress.queued.push_back((at, execution, leader)),
            }
            // Also a call that an earlier process started and that ends without running here: its outcome subtracts it again.
            progress.running += usize::from(row.status == CallStatus::Running);
            progress.rows.push((row, slot));
        }
        progress.outcomes = vec![None; progress.rows.len()];
        if !waiting.is_empty() {
            waiting.extend(granted.drain(..).map(GrantedCall::waits));
        }
        (progress, waiting, granted)
    }

    /// Waits for an outcome, unless a call may start, and takes all that are there. Returns whether it waited.
    async fn next_outcomes(&self, progress: &mut Progress<'_>) -> Result<bool, StoreError> {
        // A follower waits for its leader, which may still have to start.
        let may_start = !progress.queued.is_empty() && progress.running < self.scope.limits.parallel;
        let waits = progress.completed.is_empty() && !may_start;
        if waits && let Some(completed) = progress.futures.next().await {
            progress.completed.push(completed?);
        }
        while let Some(Some(completed)) = progress.futures.next().now_or_never() {
            progress.completed.push(completed?);
        }
        Ok(waits)
    }

    /// Checks the calls that have not started again, with the rights of now. Those that are no longer allowed end.
    fn renew_rights(&self, progress: &mut Progress<'_>, principal: Option<&Arc<Principal>>) {
        let scope = self.scope;
        for (at, mut execution, leader) in std::mem::take(&mut progress.queued) {
            let (row, slot) = &mut progress.rows[at];
            match self.permit(&execution.entry, &execution.args, principal, row) {
                Ok(grant) => {
                    execution.grant = grant;
                    execution.principal = principal.map_or(execution.principal, Arc::clone);
                    progress.queued.push_back((at, execution, leader));
                }
                Err(failure) => {
                    let outcome = Arc::new(CallOutcome::refused(failure, scope.clock.now()).with_message(&scope.texts));
                    leader.complete(&outcome);
                    stage_outcome(scope, row, slot.as_ref(), &outcome);
                    scope.running.forget_call(row.id);
                    progress.outcomes[at] = Some(outcome);
                }
            }
        }
    }

    /// Stages the outcomes that came and the starts that are possible now. Returns the calls to execute once that is durable.
    fn stage_round(&self, progress: &mut Progress<'_>) -> Vec<(usize, Box<Execution>, Leader)> {
        let scope = self.scope;
        for Completed { at, outcome, leader, usage } in std::mem::take(&mut progress.completed) {
            let (row, slot) = &progress.rows[at];
            progress.running -= usize::from(row.status == CallStatus::Running);
            if let Some(usage) = usage {
                scope.journal.stage(usage);
            }
            let outcome = self.stage_result(&mut progress.state, row, slot.as_ref(), outcome);
            if let Some(leader) = leader {
                leader.complete(&outcome);
            }
            progress.outcomes[at] = Some(outcome);
        }
        let mut starting = Vec::new();
        while progress.running < scope.limits.parallel
            && let Some((at, execution, leader)) = progress.queued.pop_front()
        {
            let (row, slot) = &mut progress.rows[at];
            if execution.cancel.is_raised() {
                let outcome = Arc::new(self.never_sent());
                leader.complete(&outcome);
                stage_outcome(scope, row, slot.as_ref(), &outcome);
                progress.outcomes[at] = Some(outcome);
                continue;
            }
            progress.running += 1;
            start(scope, row);
            starting.push((at, execution, leader));
        }
        starting
    }

    /// Stages an outcome. Its state patch is merged into a state that siblings may have changed, or dropped. Returns what was staged.
    fn stage_result(
        &self,
        state: &mut PatchedState<'_>,
        row: &CallRow,
        slot: Option<&HistorySlot>,
        mut outcome: Arc<CallOutcome>,
    ) -> Arc<CallOutcome> {
        let mut patch = outcome.result.as_ref().ok().and_then(|success| success.state_patch.clone());
        let max_bytes = self.scope.conversation_id.map_or(usize::MAX, |_| self.scope.limits.state_bytes);
        if patch.as_mut().is_some_and(|changes| !state.merge(changes, max_bytes)) {
            patch = None;
            outcome = Arc::new(outcome.without_patch(&self.scope.texts));
        }
        finish_call(self.scope, row, slot, &outcome, outcome.call_end(row), patch);
        outcome
    }

    /// A call waits for an approval. Identical calls from elsewhere that followed it meanwhile are refused.
    fn wait(&self, row: CallRow, slot: Option<HistorySlot>, pending: PendingApproval) -> WaitingCall {
        if let Some(leader) = pending.leader {
            let refused = CallOutcome::refused(approval_pending(row.id), self.scope.clock.now()).with_message(&self.scope.texts);
            leader.complete(&Arc::new(refused));
        }
        let PendingApproval { approval_id, approver_roles, server_label, announced, .. } = pending;
        WaitingCall { row, slot, approval_id, approver_roles, server_label, announced }
    }

    async fn execute(&self, at: usize, execution: Box<Execution>, leader: Leader) -> Result<Completed, StoreError> {
        let scope = self.scope;
        scope.debug("tool_pipeline_start", || {
            object(json!({"tool": execution.entry.spec().name, "job_id": execution.job_id, "arguments": execution.args}))
        });
        let attempted = attempt(scope, &execution).await;
        scope.running.forget_call(execution.job_id);
        let (outcome, usage) = attempted?;
        Ok(Completed { at, outcome: Arc::new(outcome.with_message(&scope.texts)), leader: Some(leader), usage })
    }

    async fn follow(&self, at: usize, job_id: Uuid, follower: Follower) -> Result<Completed, StoreError> {
        let outcome = self.followed_or_canceled(job_id, follower).await.unwrap_or_else(|| self.never_sent());
        Ok(Completed { at, outcome: Arc::new(outcome), leader: None, usage: None })
    }

    /// The leader's outcome, or a canceled one; `None` when the leader left without an outcome.
    async fn followed_or_canceled(&self, job_id: Uuid, follower: Follower) -> Option<CallOutcome> {
        let running = &self.scope.running;
        let cancel = running.register_call(job_id);
        let outcome = tokio::select! {
            biased;
            outcome = self.followed(follower) => outcome,
            () = cancel.raised() => Some(self.never_sent()),
        };
        running.forget_call(job_id);
        outcome
    }

    /// For a direct call that follows another: when the leader leaves and never was a row (it was a copy of this very request, or could not be
    /// recorded), this call is prepared again, to lead or to follow another one. Its stored row stays the same.
    pub(crate) async fn settle_follower(
        &self,
        mut prepared: Vec<PreparedCall>,
        request: &CallRequest,
    ) -> Result<Vec<PreparedCall>, StoreError> {
        let scope = self.scope;
        while let Some(PreparedCall { mut row, slot, plan }) = prepared.pop() {
            let CallPlan::Follow(follower) = plan else { return Ok(vec![PreparedCall { row, slot, plan }]) };
            let leader_id = follower.leader_id;
            let outcome = self.followed_or_canceled(row.id, follower).await;
            // A leader that is a row and has no outcome may have been sent: its owner settles it, and this call does not run.
            let stored = outcome.is_none() && scope.records.call(scope.tenant_id(), leader_id).await?.is_some();
            if let Some(outcome) = outcome.or_else(|| stored.then(|| self.never_sent())) {
                return Ok(vec![PreparedCall { row, slot, plan: CallPlan::Finished(Box::new(outcome)) }]);
            }
            let Some(again) = self.prepare(vec![request.clone()]).await?.pop() else { return Ok(Vec::new()) };
            row.idempotency_key = row.idempotency_key.or(again.row.idempotency_key.clone());
            if !matches!(again.plan, CallPlan::Follow(_)) {
                row.dedupe_of = None;
            }
            if let Some(approval) = again.new_approval() {
                stage_approval(scope, approval).await?;
                scope.journal.commit(CommitPoint::Calls).await?;
            }
            prepared.push(PreparedCall { row, slot, plan: again.plan });
        }
        Ok(prepared)
    }
}
