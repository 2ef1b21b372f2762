//! A batch of calls, and the forms a call takes on its way through the pipeline.

use std::sync::Arc;

use serde_json::Value;
use werkruf_contract::{Cancel, Deadline, Failure, Principal, Scope, State, ToolContext, Uuid};
use werkruf_store::{ApprovalRow, CallRow, NewApproval, StoreError};

use super::in_flight::{Follower, Leader};
use super::outcome::CallOutcome;
use super::scope::TurnScope;
use crate::registry::Entry;
use crate::taint::Taint;

/// The calls of one step, or a direct call.
pub(crate) struct CallBatch<'a> {
    pub(crate) scope: &'a Arc<TurnScope>,
    pub(crate) step: u32,
    pub(crate) state: &'a Arc<State>,
    /// Correlation for every call of the batch; each call gets its own `invocation_id`.
    pub(crate) context: &'a ToolContext,
    /// The turn's calls so far. A read that may only be reused inside the turn is found here.
    pub(crate) earlier: &'a [FinishedCall],
    /// What the model had read when it requested the calls.
    pub(crate) taint: &'a Taint,
}

/// Where a call's result stands in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistorySlot {
    pub(crate) id: String,
    /// The history holds a placeholder, which the result replaces.
    pub(crate) has_placeholder: bool,
}

/// A call that the pipeline has decided on. Its row is ready to be written.
pub(crate) struct PreparedCall {
    pub(crate) row: CallRow,
    pub(crate) slot: Option<HistorySlot>,
    pub(super) plan: CallPlan,
}

/// What happens to a call.
pub(super) enum CallPlan {
    /// It ended without running.
    Finished(Box<CallOutcome>),
    /// It takes the outcome of an identical call in flight.
    Follow(Follower),
    /// It waits for an approval.
    AwaitApproval(Box<PendingApproval>),
    Execute(Box<Execution>, Leader),
    /// It is approved, and the provider runs it.
    Grant,
}

/// A call that may run.
pub(super) struct Execution {
    pub(super) entry: Arc<Entry>,
    pub(super) args: Value,
    /// The rows that the call may touch.
    pub(super) grant: Scope,
    /// With the rights of now, not of the turn's start.
    pub(super) principal: Arc<Principal>,
    pub(super) job_id: Uuid,
    pub(super) idempotency_key: String,
    /// What the model had read, as in the row.
    pub(super) untrusted: Option<Arc<str>>,
    pub(super) context: Arc<ToolContext>,
    pub(super) state: Arc<State>,
    /// Raised for this call alone, or for the whole turn.
    pub(super) cancel: Cancel,
    pub(super) deadline: Deadline,
    /// 1, or more where an earlier process had started the call.
    pub(super) attempt: u32,
}

/// Why a call waits.
pub(super) struct PendingApproval {
    /// `None` for a copy that waits for the identical call beside it.
    pub(super) approval_id: Option<Uuid>,
    /// Not yet written.
    pub(super) new: Option<NewApproval>,
    /// Who may approve.
    pub(super) approver_roles: Vec<String>,
    /// The server that the provider would call.
    pub(super) server_label: Option<String>,
    /// Clients have received `approval_required`.
    pub(super) announced: bool,
    /// Held while the step is prepared, so that a copy in the same step finds the call.
    pub(super) leader: Option<Leader>,
}

impl PendingApproval {
    /// For a call whose approval is written with it.
    pub(super) fn new(approval: NewApproval) -> Self {
        let (approver_roles, server_label) = (approval.approver_roles.clone(), approval.server_label.clone());
        Self { approval_id: Some(approval.id), new: Some(approval), approver_roles, server_label, announced: false, leader: None }
    }

    /// For a call that an earlier process left.
    pub(super) fn stored(approval: &ApprovalRow, announced: bool) -> Self {
        let (approver_roles, server_label) = (approval.approver_roles.clone(), approval.server_label.clone());
        Self { approval_id: Some(approval.id), new: None, approver_roles, server_label, announced, leader: None }
    }

    /// For a copy of a call that waits.
    pub(super) const fn copy() -> Self {
        Self { approval_id: None, new: None, approver_roles: Vec::new(), server_label: None, announced: true, leader: None }
    }
}

/// A call that has ended.
pub(crate) struct FinishedCall {
    pub(crate) row: CallRow,
    pub(crate) outcome: Arc<CallOutcome>,
    pub(crate) slot: Option<HistorySlot>,
}

/// A call that the turn leaves until its approval is decided.
pub(crate) struct WaitingCall {
    pub(super) row: CallRow,
    pub(super) slot: Option<HistorySlot>,
    pub(crate) approval_id: Option<Uuid>,
    pub(super) approver_roles: Vec<String>,
    pub(super) server_label: Option<String>,
    pub(super) announced: bool,
}

/// An approved call that the provider runs: the approval leaves with the next model request.
pub(crate) struct GrantedCall {
    pub(crate) row: CallRow,
    pub(crate) slot: Option<HistorySlot>,
}

impl GrantedCall {
    /// It is approved, but another call of its step is not decided yet.
    pub(super) fn waits(self) -> WaitingCall {
        let Self { row, slot } = self;
        WaitingCall { row, slot, approval_id: None, approver_roles: Vec::new(), server_label: None, announced: true }
    }
}

/// What a batch came to. The last outcomes are staged in the journal and not yet durable.
pub(crate) struct BatchResult {
    pub(crate) finished: Vec<FinishedCall>,
    pub(crate) waiting: Vec<WaitingCall>,
    /// None while others wait: the next model request must have the results of all.
    pub(crate) granted: Vec<GrantedCall>,
    /// The conversation's state after the batch, where a call changed it.
    pub(crate) state: Option<State>,
}

/// Why the pipeline stopped: the call is refused, or the store failed.
pub(super) enum Halt {
    Refused(Box<Failure>),
    Store(StoreError),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Refused(Box::new(failure))
    }
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl PreparedCall {
    /// The approval that must be written with the call.
    pub(crate) fn new_approval(&self) -> Option<NewApproval> {
        match &self.plan {
            CallPlan::AwaitApproval(pending) => pending.new.clone(),
            CallPlan::Finished(_) | CallPlan::Follow(_) | CallPlan::Execute(..) | CallPlan::Grant => None,
        }
    }

    /// The dedupe key that the call leads, and its id; `None` where it does not run.
    pub(crate) fn led_key(&self) -> Option<(&str, Uuid)> {
        match &self.plan {
            CallPlan::Execute(_, leader) => Some(leader.key()),
            CallPlan::Finished(_) | CallPlan::Follow(_) | CallPlan::AwaitApproval(_) | CallPlan::Grant => None,
        }
    }
}

/// Whether this call of the batch waits for an approval.
pub(super) fn awaits_approval(batch: &[PreparedCall], job_id: Uuid) -> bool {
    batch.iter().any(|call| call.row.id == job_id && matches!(call.plan, CallPlan::AwaitApproval(_)))
}
