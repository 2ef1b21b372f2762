//! Approvals in the tables: one row per call, decided once; and the invariants after every write.

use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, CallStatus, EventType, Runner, TurnStatus, Uuid};
use werkruf_store::{
    ApprovalFilter, ApprovalRow, CallRow, Decision, DecisionOutcome, NewApproval, Order, Page, Replacement, StoreError, TurnWrite,
};

use crate::mutant::Mutant;
use crate::tables::{Tables, broken};
use crate::trace::short;

impl Tables {
    pub fn add_approval(
        &mut self,
        tenant_id: Uuid,
        ids: (Option<Uuid>, Uuid),
        new: &NewApproval,
        now: Timestamp,
        mutant: Mutant,
    ) -> Result<(), StoreError> {
        if self.approvals.contains_key(&new.id) || self.approvals.values().any(|row| row.call_id == new.call_id) {
            return Err(broken("UNIQUE constraint failed: approvals.call_id"));
        }
        let row = ApprovalRow {
            id: new.id,
            tenant_id,
            conversation_id: ids.0,
            turn_id: ids.1,
            call_id: new.call_id,
            tool_name: new.tool_name.clone(),
            server_label: new.server_label.clone(),
            arguments: new.arguments.clone(),
            arguments_digest: new.arguments_digest.clone(),
            approver_roles: new.approver_roles.clone(),
            taint: new.taint.clone(),
            asked_by: new.asked_by.clone(),
            asked_key: new.asked_key.clone(),
            retried_by: new.retried_by.clone(),
            status: if mutant == Mutant::ApprovalPresumed { ApprovalStatus::Approved } else { ApprovalStatus::Pending },
            decided_by: None,
            decided_key: None,
            created_at: now,
            decided_at: None,
            expires_at: new.expires_at,
        };
        self.approvals.insert(new.id, Arc::new(row));
        Ok(())
    }

    pub fn withdraw(&mut self, call_id: Uuid, now: Timestamp) {
        let pending = self.approvals.values_mut().find(|row| row.call_id == call_id && row.status == ApprovalStatus::Pending);
        if let Some(row) = pending.map(Arc::make_mut) {
            (row.status, row.decided_at) = (ApprovalStatus::Canceled, Some(now));
        }
    }

    pub fn decide(&mut self, id: Uuid, decision: &Decision, mutant: Mutant) -> Option<DecisionOutcome> {
        let row = Arc::make_mut(self.approvals.get_mut(&id)?);
        let open = row.status == ApprovalStatus::Pending || mutant == Mutant::DecidedTwice;
        let asked = row.was_asked_by(&decision.by) || decision.key.as_ref() == Some(&row.asked_key);
        if open && (row.expires_at > decision.at || mutant == Mutant::DecidedLate) && !(decision.by_another && asked) {
            (row.status, row.decided_by, row.decided_at) = (decision.status, Some(decision.by.clone()), Some(decision.at));
            row.decided_key.clone_from(&decision.key);
            return Some(DecisionOutcome::Decided(row.clone()));
        }
        Some(decision.outcome_without_change(row.clone()))
    }

    pub fn overdue(&self, now: Timestamp) -> bool {
        self.approvals.values().any(|row| row.status == ApprovalStatus::Pending && row.expires_at <= now)
    }

    pub fn expire(&mut self, now: Timestamp) -> u64 {
        let mut expired = 0;
        for row in self.approvals.values_mut().filter(|row| row.status == ApprovalStatus::Pending && row.expires_at <= now) {
            let row = Arc::make_mut(row);
            (row.status, row.decided_at) = (ApprovalStatus::Expired, Some(now));
            expired += 1;
        }
        expired
    }

    pub fn list_approvals(&self, filter: &ApprovalFilter, page: Page) -> Vec<ApprovalRow> {
        let matches = |row: &&Arc<ApprovalRow>| {
            filter.status.is_none_or(|status| row.status == status)
                && filter.turn_id.is_none_or(|turn| row.turn_id == turn)
                && filter.roles.as_ref().is_none_or(|roles| row.approver_roles.iter().any(|role| roles.contains(role)))
                && page.after.is_none_or(|after| if page.order == Order::OldestFirst { row.id > after } else { row.id < after })
        };
        let mut found: Vec<ApprovalRow> = self.approvals.values().filter(matches).map(|row| (**row).clone()).collect();
        if page.order == Order::NewestFirst {
            found.reverse();
        }
        found.truncate(usize::try_from(page.limit).unwrap());
        found
    }

    /// Whether a call of this turn has been decided and not started yet; one that the provider runs waits for the decisions of all.
    pub fn has_decision(&self, turn_id: Uuid) -> bool {
        let mut of_turn = self.approvals.values().filter(|row| row.turn_id == turn_id);
        let all_decided = of_turn.clone().all(|row| row.status != ApprovalStatus::Pending);
        let may_start = |call: &Arc<CallRow>| call.status == CallStatus::Queued && (call.runner != Runner::Provider || all_decided);
        of_turn.any(|row| row.status != ApprovalStatus::Pending && self.calls.get(&row.call_id).is_some_and(may_start))
    }

    /// Whether the call has an approval row, in any status.
    pub fn needs_approval(&self, call_id: Uuid) -> bool {
        self.approvals.values().any(|row| row.call_id == call_id)
    }

    pub fn replace(&mut self, turn_id: Uuid, result: &Replacement) -> Result<(), StoreError> {
        let is_placeholder = |row: &&mut Arc<werkruf_store::MessageRow>| {
            row.turn_id == Some(turn_id)
                && row.tool_call_id.as_ref() == Some(&result.tool_call_id)
                && row.status.as_deref() == Some("pending")
        };
        let row = self.messages.values_mut().find(is_placeholder).map(Arc::make_mut);
        let row = row.ok_or_else(|| StoreError::Moved { what: "message", id: result.tool_call_id.clone() })?;
        (row.content, row.status, row.tokens) = (result.content.clone(), Some(result.status.to_owned()), None);
        if let Some(metadata) = &result.metadata {
            row.metadata.clone_from(metadata);
        }
        Ok(())
    }

    /// Checks the invariants of turns that await approval, after this write.
    pub fn check_waiting(&mut self, write: &TurnWrite) {
        let turn_id = write.turn_id;
        let queued = |call_id: Uuid| self.calls.get(&call_id).is_some_and(|call| call.status == CallStatus::Queued);
        let mine = || self.approvals.values().filter(|row| row.turn_id == turn_id);
        let is_placeholder =
            |row: &&Arc<werkruf_store::MessageRow>| row.turn_id == Some(turn_id) && row.status.as_deref() == Some("pending");
        let placeholders = self.messages.values().filter(is_placeholder).count();
        let open = self.calls.values().filter(|call| call.turn_id == turn_id && !call.status.is_terminal()).count();
        let mut violations = Vec::new();
        if placeholders > open {
            violations.push(format!("turn {} has {placeholders} placeholders for {open} open calls", short(turn_id)));
        }
        match write.turn.as_ref().map(|change| change.status) {
            Some(TurnStatus::AwaitingApproval) => {
                // What was decided before the turn waits is not asked for any more.
                let asks = |row: &&Arc<ApprovalRow>| row.status == ApprovalStatus::Pending && queued(row.call_id);
                let unannounced = mine().filter(asks).filter(|row| !self.is_announced(row));
                violations
                    .extend(unannounced.map(|row| format!("turn {} awaits {}, which was not announced", short(turn_id), short(row.id))));
                if !mine().any(|row| queued(row.call_id)) {
                    violations.push(format!("turn {} awaits no approval", short(turn_id)));
                }
                *self.approval_waits.entry(turn_id).or_default() += 1;
            }
            Some(status) if status.is_terminal() => {
                let left = mine().filter(|row| row.status == ApprovalStatus::Pending);
                violations.extend(left.map(|row| format!("turn {} has ended, and {} is still pending", short(turn_id), short(row.id))));
            }
            Some(_) | None => {}
        }
        self.violations.extend(violations);
    }

    fn is_announced(&self, row: &ApprovalRow) -> bool {
        let stream_id = row.conversation_id.unwrap_or(row.turn_id);
        let events = self.events.range((stream_id, 0)..=(stream_id, i64::MAX)).map(|(_, event)| event);
        let id = row.id.to_string();
        events.filter(|event| event.kind == EventType::ApprovalRequired).any(|event| event.data.contains(&id))
    }
}
