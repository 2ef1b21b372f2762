//! The stage that asks for approvals. The approval is written in commit B; the turn then waits, and the decision queues it again.
//!
//! A call that waits has no outcome: its row stays `queued`, a placeholder stands for its result, and the turn gives its lease back. Nothing of
//! it stays in memory; the decision finds the turn in the store.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use werkruf_contract::{ApprovalRequired, ApprovalStatus, ErrorCode, EventType, Failure, TurnStatus, Usage, Uuid, hex};
use werkruf_store::{ApprovalRow, CallRow, NewApproval, NewMessage, StoreError, TurnChange};

use super::approvers::approver_rows;
use super::batch::{CallBatch, CallPlan, HistorySlot, PendingApproval, WaitingCall};
use super::scope::TurnScope;
use crate::journal::CommitPoint;
use crate::registry::Entry;
use crate::stored::object;
use crate::taint::TaintPolicy;

/// Who decides where a safety profile or taint asks for an approval and the tool names no role.
const FALLBACK_ROLE: &str = "admin";

/// What a stored approval means for its call.
pub(super) enum Decision {
    Approved,
    Pending,
    Withdrawn,
    Refused(Failure),
}

pub(super) fn decision(approval: &ApprovalRow, row: &CallRow) -> Decision {
    let failure = |code| Failure::fatal(code, "").nothing_happened().with_details(object(json!({"approval_id": approval.id})));
    match approval.status {
        ApprovalStatus::Pending => Decision::Pending,
        ApprovalStatus::Canceled => Decision::Withdrawn,
        ApprovalStatus::Denied => Decision::Refused(failure(ErrorCode::ApprovalDenied)),
        ApprovalStatus::Expired => Decision::Refused(failure(ErrorCode::ApprovalExpired)),
        ApprovalStatus::Approved if row.request.as_deref().map(digest).as_ref() == Some(&approval.arguments_digest) => Decision::Approved,
        ApprovalStatus::Approved => {
            Decision::Refused(failure(ErrorCode::ApprovalDenied).because("the arguments are not those that were approved"))
        }
    }
}

/// Names arguments: equal values have equal digests, however they are written.
fn digest(arguments: &str) -> String {
    let canonical = serde_json::from_str::<Value>(arguments).ok().and_then(|value| serde_json_canonicalizer::to_vec(&value).ok());
    hex(&Sha256::digest(canonical.unwrap_or_else(|| arguments.as_bytes().to_vec())))
}

impl CallBatch<'_> {
    /// What an approval decides for a call that has not started; `None` where the call may run. `stored` is the approval of a call that an
    /// earlier process left, and whether clients know that it waits.
    pub(super) fn approve(&self, entry: &Entry, row: &CallRow, stored: Option<(&ApprovalRow, bool)>) -> Result<Option<CallPlan>, Failure> {
        if let Some((approval, announced)) = stored {
            return match decision(approval, row) {
                Decision::Approved => Ok(None),
                Decision::Pending => Ok(Some(CallPlan::AwaitApproval(Box::new(PendingApproval::stored(approval, announced))))),
                Decision::Withdrawn => Ok(Some(CallPlan::Finished(Box::new(self.never_sent())))),
                Decision::Refused(failure) => Err(failure),
            };
        }
        let demand = self.taint.demand(entry.spec(), row);
        if demand == Some(TaintPolicy::Deny) {
            return Err(tainted(row));
        }
        let ask = |roles| CallPlan::AwaitApproval(Box::new(PendingApproval::new(self.new_approval(row, roles))));
        Ok(self.approvers(entry, demand.is_some()).map(ask))
    }

    /// The roles of which one must approve a call of this tool; `None` where no approval is needed.
    fn approvers(&self, entry: &Entry, tainted: bool) -> Option<Vec<String>> {
        let spec = entry.spec();
        let by_profile =
            || self.safety_profiles().flatten().any(|profile| profile.approval_required_for.iter().any(|name| spec.goes_by(name)));
        match spec.approval.is_empty() {
            false => Some(spec.approval.iter().map(ToString::to_string).collect()),
            true => (tainted || by_profile()).then(|| vec![FALLBACK_ROLE.to_owned()]),
        }
    }

    /// Asks these roles for an approval of the call.
    pub(super) fn new_approval(&self, row: &CallRow, approver_roles: Vec<String>) -> NewApproval {
        let scope = self.scope;
        let arguments = row.request.clone().unwrap_or_else(|| "null".to_owned());
        NewApproval {
            id: scope.clock.new_id(),
            call_id: row.id,
            tool_name: row.tool_name.clone(),
            server_label: None,
            arguments_digest: digest(&arguments),
            arguments,
            approver_roles,
            taint: row.taint.clone(),
            asked_by: scope.caller.principal.user_id.clone(),
            asked_key: scope.caller.credential.clone(),
            retried_by: scope.caller.retried_by.clone(),
            expires_at: scope.clock.now() + scope.limits.approval_ttl(),
        }
    }
}

/// Stages a new approval, and the rows that ask the approvers for a decision.
pub(crate) async fn stage_approval(scope: &TurnScope, approval: NewApproval) -> Result<(), StoreError> {
    for row in approver_rows(scope, &approval).await? {
        scope.journal.stage(row);
    }
    scope.journal.stage(approval);
    Ok(())
}

/// Lets the turn wait: placeholders, the events that ask for approval, and the lease given back. The turn's own streams end here; those of the
/// conversation continue.
pub(crate) async fn await_approvals(
    scope: &TurnScope,
    step: u32,
    waiting: Vec<WaitingCall>,
    used: Option<&Usage>,
) -> Result<(), StoreError> {
    let journal = &scope.journal;
    for call in &waiting {
        if let Some(slot) = call.slot.as_ref().filter(|slot| !slot.has_placeholder) {
            journal.stage(placeholder(scope, call, slot));
        }
        if let Some(approval_id) = call.approval_id.filter(|_| !call.announced) {
            journal.stage_event(EventType::ApprovalRequired, &approval_required(call, approval_id, used));
        }
    }
    let asked = waiting.iter().filter(|call| call.approval_id.is_some() && !call.announced);
    let asked: Vec<_> = asked.map(|call| (call.row.tool_name.as_str(), call.approver_roles.as_slice())).collect();
    for row in journal.audience().waits(&asked, &scope.texts) {
        journal.stage(row);
    }
    journal.stage(TurnChange { status: TurnStatus::AwaitingApproval, step, error: None, message: None, transcript_digest: None });
    journal.commit(CommitPoint::AwaitingApproval).await?;
    journal.disconnect_subscribers();
    tracing::info!(turn_id = %scope.turn_id, calls = waiting.len(), "the turn waits for approval");
    Ok(())
}

fn placeholder(scope: &TurnScope, call: &WaitingCall, slot: &HistorySlot) -> NewMessage {
    let message = scope.texts.text("call-approval_pending", &[]);
    let content = json!({"status": "waiting for approval", "approval_id": call.approval_id, "message": message}).to_string();
    NewMessage::result(scope.clock.new_id(), slot.id.as_str(), call.row.tool_name.as_str(), content, "pending")
}

fn approval_required(call: &WaitingCall, approval_id: Uuid, used: Option<&Usage>) -> ApprovalRequired {
    let row = &call.row;
    ApprovalRequired {
        approval_id,
        tool: row.tool_name.clone(),
        server_label: call.server_label.clone(),
        job_id: row.id,
        arguments: row.request.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
        taint: taint_of(row),
        usage: used.cloned(),
    }
}

/// The failure of a call that the assistant refuses for what the model had read.
pub(super) fn tainted(row: &CallRow) -> Failure {
    Failure::fatal(ErrorCode::Tainted, "").nothing_happened().with_details(object(json!({"taint": taint_of(row)})))
}

/// What the model had read, as JSON.
fn taint_of(row: &CallRow) -> Option<Value> {
    row.taint.as_deref().and_then(|text| serde_json::from_str(text).ok())
}
