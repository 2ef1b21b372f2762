//! The stages of a call that the provider wants to run itself and asks for: this server has it approved, and records it.
//!
//! No tool of ours is involved, so nothing is found, validated or repaired, and no permission counts. Safety profiles and taint do.

use serde_json::Value;
use werkruf_contract::{Effect, ErrorCode, Failure, ToolSpec};
use werkruf_store::{ApprovalRow, CallRow, NewApproval};

use super::approval::{Decision, decision, tainted};
use super::batch::{CallBatch, CallPlan, PendingApproval};
use super::outcome::interrupted;
use super::record::display_name;
use crate::taint::TaintPolicy;

impl CallBatch<'_> {
    /// Has a new request approved. Whoever decides sees which server the provider would call: the name of a tool alone does not say it.
    pub(super) fn ask_for_provider(&self, row: &mut CallRow, server_label: Option<&str>) -> Result<CallPlan, Failure> {
        row.request = Some(arguments(row.raw_arguments.as_deref().unwrap_or_default())?);
        self.require_safety(row)?;
        if self.taint.demand(&ToolSpec::new(row.tool_name.clone(), "", Effect::Once), row) == Some(TaintPolicy::Deny) {
            return Err(tainted(row));
        }
        let approval = self.new_approval(row, vec![self.scope.setup.provider_role.clone()]);
        let approval = NewApproval { server_label: server_label.map(display_name), ..approval };
        Ok(CallPlan::AwaitApproval(Box::new(PendingApproval::new(approval))))
    }

    /// Refuses what a safety profile denies. A profile that is no longer configured allows nothing.
    fn require_safety(&self, row: &CallRow) -> Result<(), Failure> {
        if self.safety_profiles().any(|profile| profile.is_none_or(|profile| profile.tools_denied.contains(&row.tool_name))) {
            let failure = Failure::fatal(ErrorCode::PermissionDenied, "").nothing_happened();
            return Err(failure.because("switched off by the safety mode"));
        }
        Ok(())
    }

    /// What a stored request needs. It has not left. Safety profiles may have changed since.
    pub(super) fn decide_for_provider(&self, row: &CallRow, approval: Option<(&ApprovalRow, bool)>) -> Result<CallPlan, Failure> {
        // The request and its approval are written together.
        let (approval, announced) = approval.ok_or_else(interrupted)?;
        match decision(approval, row) {
            Decision::Approved => self.require_safety(row).map(|()| CallPlan::Grant),
            Decision::Pending => Ok(CallPlan::AwaitApproval(Box::new(PendingApproval::stored(approval, announced)))),
            Decision::Withdrawn => Ok(CallPlan::Finished(Box::new(self.never_sent()))),
            Decision::Refused(failure) => Err(failure),
        }
    }
}

/// The arguments, which an approver must be able to read. Missing ones mean that there are none.
fn arguments(raw: &str) -> Result<String, Failure> {
    if raw.trim().is_empty() {
        return Ok("{}".to_owned());
    }
    match serde_json::from_str(raw) {
        Ok(Value::Object(_)) => Ok(raw.to_owned()),
        Ok(_) | Err(_) => Err(Failure::validation(ErrorCode::InvalidArguments, "The arguments are not a JSON object.").nothing_happened()),
    }
}
