//! Calls that an earlier process left open, on their way through the same stages: their arguments are parsed already, rights are checked again.

use std::sync::Arc;

use werkruf_contract::{CallStatus, Effect, Failure, Principal, ToolContext, Uuid};
use werkruf_store::{ApprovalRow, CallRetry, CallRow, StoreError};

use super::approval::stage_approval;
use super::batch::{CallBatch, CallPlan, HistorySlot, PendingApproval, PreparedCall, awaits_approval};
use super::in_flight::Role;
use super::outcome::{CallOutcome, interrupted};
use super::tool_usage::lost_attempt;
use crate::stored::is_provider_request;

/// A stored call that needs an outcome or a result message.
pub(crate) struct StoredCall<'a> {
    pub(crate) row: CallRow,
    pub(crate) slot: Option<HistorySlot>,
    pub(crate) approval: Option<&'a ApprovalRow>,
    /// Clients know that the call waits for an approval.
    pub(crate) announced: bool,
}

impl CallBatch<'_> {
    /// Decides on each stored call: a running `once` call ends with an unknown outcome, every other open call is sent again with the same key.
    /// What must be durable first is staged.
    pub(crate) async fn prepare_stored(&self, stored: Vec<StoredCall<'_>>) -> Result<Vec<PreparedCall>, StoreError> {
        let scope = self.scope;
        let principal = self.principal().await?;
        let mut prepared: Vec<PreparedCall> = Vec::with_capacity(stored.len());
        for StoredCall { mut row, slot, approval, announced } in stored {
            let approval = approval.map(|approval| (approval, announced));
            let plan = self.decide_stored(&mut row, principal.as_ref(), &prepared, approval).unwrap_or_else(|failure| {
                let outcome = CallOutcome::failed(failure, CallStatus::Failed, row.effect, row.attempt, scope.clock.now());
                CallPlan::Finished(Box::new(outcome.with_message(&scope.texts)))
            });
            let call = PreparedCall { row, slot, plan };
            if let Some(approval) = call.new_approval() {
                stage_approval(scope, approval).await?;
            }
            prepared.push(call);
        }
        Ok(prepared)
    }

    fn decide_stored(
        &self,
        row: &mut CallRow,
        principal: Option<&Arc<Principal>>,
        siblings: &[PreparedCall],
        approval: Option<(&ApprovalRow, bool)>,
    ) -> Result<CallPlan, Failure> {
        let is_sibling = |id: Uuid| siblings.iter().any(|call| call.row.id == id);
        if row.status.is_terminal() {
            return Ok(CallPlan::Finished(Box::new(CallOutcome::stored(row))));
        }
        if row.status == CallStatus::Running && row.effect == Effect::Once {
            return Err(interrupted().may_have_happened());
        }
        if is_provider_request(row) {
            return self.decide_for_provider(row, approval);
        }
        if let Some(outcome) = self.outcome_of_copied(row, siblings) {
            return Ok(CallPlan::Finished(Box::new(outcome)));
        }
        if row.dedupe_of.is_some_and(|copied| awaits_approval(siblings, copied)) {
            return Ok(CallPlan::AwaitApproval(Box::new(PendingApproval::copy())));
        }
        if row.effect == Effect::Once && row.dedupe_of.is_some_and(|copied| !is_sibling(copied)) && approval.is_none() {
            // It followed a call of another turn, which may have been carried out. With an approval of its own it follows no more.
            return Err(interrupted().may_have_happened());
        }
        let entry = self.find(&row.tool_name)?;
        let args = row.request.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let grant = self.permit(entry, &args, principal, row)?;
        let key = row.dedupe_key.clone().unwrap_or_else(|| row.id.to_string());
        let in_flight = &self.scope.in_flight;
        let leader = match in_flight.enter(&key, row.id) {
            // Any other holder of the key may be a repeated request, which leaves without an outcome.
            Role::Follower(follower) if !is_sibling(follower.leader_id) => in_flight.take_lead(&key, row.id),
            Role::Follower(follower) => return Ok(CallPlan::Follow(follower)),
            Role::Leader(leader) => leader,
        };
        row.dedupe_of = None;
        if row.status == CallStatus::Queued
            // An approval may be needed only since now: then it is asked for.
            && let Some(plan) = self.approve(entry, row, approval)?
        {
            return Ok(plan);
        }
        if row.status == CallStatus::Running {
            self.stage_next_attempt(row);
        }
        let context = serde_json::from_str(&row.context).ok().and_then(|context| ToolContext::from_json(context).ok());
        let context = context.unwrap_or_else(|| self.context.clone());
        Ok(CallPlan::Execute(Box::new(self.execution(entry, args, grant, principal, row, context)), leader))
    }

    /// The attempt of the earlier process failed, and the next one starts.
    fn stage_next_attempt(&self, row: &mut CallRow) {
        let scope = self.scope;
        let (now, started_at) = (scope.clock.now(), row.started_at.unwrap_or(row.created_at));
        let mut failure = interrupted();
        failure.message = scope.texts.text("call-interrupted", &[]);
        let error = serde_json::to_string(&failure.into_detail(row.attempt)).unwrap_or_default();
        let (id, attempt) = (row.id, row.attempt);
        if let Some(usage) = lost_attempt(scope, row) {
            scope.journal.stage(usage);
        }
        scope.journal.stage(CallRetry {
            id,
            attempt,
            started_at,
            finished_at: now,
            status: CallStatus::Failed,
            error,
            next_started_at: now,
        });
        row.attempt += 1;
        row.started_at = Some(now);
    }

    /// A copy takes the outcome of the call it copied: to run it now would be a second time.
    fn outcome_of_copied(&self, row: &CallRow, siblings: &[PreparedCall]) -> Option<CallOutcome> {
        let (copied, now) = (row.dedupe_of?, self.scope.clock.now());
        let earlier = self.earlier.iter().find(|call| call.row.id == copied).map(|call| call.outcome.shared(now));
        earlier.or_else(|| {
            siblings.iter().filter(|call| call.row.id == copied).find_map(|call| match &call.plan {
                CallPlan::Finished(outcome) => Some(outcome.shared(now)),
                CallPlan::Follow(_) | CallPlan::AwaitApproval(_) | CallPlan::Execute(..) | CallPlan::Grant => None,
            })
        })
    }
}
