//! The audit of approvals: requested once, decided once, and no call runs without one.

use std::collections::BTreeMap;

use werkruf_contract::{ApprovalStatus, CallStatus, EventType, Uuid};
use werkruf_store::ApprovalRow;

use crate::audit::Audit;
use crate::trace::short;

impl Audit<'_> {
    pub fn approvals(&mut self) {
        self.violations.extend(self.tables.violations.iter().cloned());
        let rows: Vec<ApprovalRow> = self.tables.approvals.values().map(|row| (**row).clone()).collect();
        let announced = self.announced();
        for row in &rows {
            self.decided(row);
            self.decision_applied(row);
            let times = announced.get(&row.id.to_string()).copied().unwrap_or(0);
            if times > 1 {
                self.violation(format!("{} was announced {times} times", short(row.id)));
            }
        }
        let placeholders = self.tables.messages.values().filter(|row| row.status.as_deref() == Some("pending"));
        let placeholders: Vec<String> = placeholders.map(|row| format!("a placeholder for {:?} was left", row.tool_call_id)).collect();
        self.violations.extend(placeholders);
    }

    fn announced(&self) -> BTreeMap<String, usize> {
        let mut announced: BTreeMap<String, usize> = BTreeMap::new();
        for event in self.tables.events.values().filter(|event| event.kind == EventType::ApprovalRequired) {
            let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
            *announced.entry(data["approval_id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        announced
    }

    /// Every approval is decided once, in time, and as a client sent it.
    fn decided(&mut self, row: &ApprovalRow) {
        let name = short(row.id);
        if row.status == ApprovalStatus::Pending {
            self.violation(format!("{name} is still pending"));
        }
        let by_client = matches!(row.status, ApprovalStatus::Approved | ApprovalStatus::Denied);
        let yes = row.status == ApprovalStatus::Approved;
        if by_client && !self.observed.decisions_sent.contains(&(row.id, yes)) {
            self.violation(format!("{name} is {}, and no client decided so", row.status));
        }
        if by_client && row.decided_at.is_none_or(|at| at >= row.expires_at) {
            self.violation(format!("{name} was decided at {:?}, after {}", row.decided_at, row.expires_at));
        }
        if row.status == ApprovalStatus::Expired && row.decided_at.is_none_or(|at| at < row.expires_at) {
            self.violation(format!("{name} expired at {:?}, before {}", row.decided_at, row.expires_at));
        }
        let acknowledged: Vec<ApprovalStatus> =
            self.observed.decisions_acknowledged.iter().filter(|(id, _)| *id == row.id).map(|(_, status)| *status).collect();
        if acknowledged.len() > 1 || acknowledged.first().is_some_and(|status| *status != row.status) {
            self.violation(format!("clients received {acknowledged:?} for {name}, which is {}", row.status));
        }
    }

    /// A call without approval was never sent, and its row has the reason.
    fn decision_applied(&mut self, row: &ApprovalRow) {
        let Some(call) = self.row(row.call_id).cloned() else {
            self.violation(format!("{} belongs to a missing call", short(row.id)));
            return;
        };
        let (name, sent) = (short(call.id), self.observed.sends.iter().any(|send| send.job_id == call.id));
        let succeeded = call.status == CallStatus::Succeeded;
        if row.status != ApprovalStatus::Approved && (sent || succeeded) {
            self.violation(format!("{name} is {} and sent: {sent}, though its approval is {}", call.status, row.status));
        }
        let code = call.error_code.as_deref().unwrap_or_default();
        let reason = match row.status {
            ApprovalStatus::Approved => !matches!(code, "approval_denied" | "approval_expired"),
            ApprovalStatus::Denied => code != "approval_expired",
            ApprovalStatus::Expired => code != "approval_denied",
            ApprovalStatus::Canceled | ApprovalStatus::Pending => !matches!(code, "approval_denied" | "approval_expired"),
        };
        if !reason {
            self.violation(format!("{name} ended as {code}, and its approval is {}", row.status));
        }
        let turn = self.turn_end(row.turn_id);
        if turn.is_none_or(|end| call.finished_at.is_none_or(|at| at > end)) {
            self.violation(format!("{name} ended after its turn"));
        }
    }

    fn turn_end(&self, turn_id: Uuid) -> Option<jiff::Timestamp> {
        self.tables.turns.get(&turn_id).and_then(|turn| turn.finished_at)
    }
}
