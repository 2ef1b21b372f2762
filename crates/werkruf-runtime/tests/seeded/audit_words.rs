//! The part of the audit that is about people's words: asked once, decided once, and nothing without them.

use std::collections::BTreeMap;

use werkruf_contract::{ApprovalStatus, CallStatus, EventType, Uuid};
use werkruf_store::ApprovalRow;

use crate::audit::Audit;
use crate::trace::short;

impl Audit<'_> {
    pub fn words(&mut self) {
        self.found.extend(self.tables.faults.iter().cloned());
        let rows: Vec<ApprovalRow> = self.tables.approvals.values().map(|row| (**row).clone()).collect();
        let announced = self.announced();
        for row in &rows {
            self.decided(row);
            self.obeyed(row);
            let times = announced.get(&row.id.to_string()).copied().unwrap_or(0);
            if times > 1 {
                self.wrong(format!("{} was asked for {times} times", short(row.id)));
            }
        }
        let standing = self.tables.messages.values().filter(|row| row.status.as_deref() == Some("pending"));
        let standing: Vec<String> = standing.map(|row| format!("a placeholder for {:?} was left", row.tool_call_id)).collect();
        self.found.extend(standing);
    }

    fn announced(&self) -> BTreeMap<String, usize> {
        let mut announced: BTreeMap<String, usize> = BTreeMap::new();
        for event in self.tables.events.values().filter(|event| event.kind == EventType::ApprovalRequired) {
            let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
            *announced.entry(data["approval_id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        announced
    }

    /// Once, in time, and by somebody who said so.
    fn decided(&mut self, row: &ApprovalRow) {
        let name = short(row.id);
        if row.status == ApprovalStatus::Pending {
            self.wrong(format!("{name} is still asked for"));
        }
        let by_person = matches!(row.status, ApprovalStatus::Approved | ApprovalStatus::Denied);
        let yes = row.status == ApprovalStatus::Approved;
        if by_person && !self.ledger.words.contains(&(row.id, yes)) {
            self.wrong(format!("{name} is {}, and nobody said so", row.status));
        }
        if by_person && row.decided_at.is_none_or(|at| at >= row.expires_at) {
            self.wrong(format!("{name} was decided at {:?}, after {}", row.decided_at, row.expires_at));
        }
        if row.status == ApprovalStatus::Expired && row.decided_at.is_none_or(|at| at < row.expires_at) {
            self.wrong(format!("{name} expired at {:?}, before {}", row.decided_at, row.expires_at));
        }
        let told: Vec<ApprovalStatus> = self.ledger.decided.iter().filter(|(id, _)| *id == row.id).map(|(_, status)| *status).collect();
        if told.len() > 1 || told.first().is_some_and(|status| *status != row.status) {
            self.wrong(format!("clients were told {told:?} of {name}, which is {}", row.status));
        }
    }

    /// What was not approved never left, and its row says why.
    fn obeyed(&mut self, row: &ApprovalRow) {
        let Some(call) = self.row(row.call_id).cloned() else {
            self.wrong(format!("{} is about a call that is not there", short(row.id)));
            return;
        };
        let (name, sent) = (short(call.id), self.ledger.sends.iter().any(|send| send.job_id == call.id));
        let succeeded = call.status == CallStatus::Succeeded;
        if row.status != ApprovalStatus::Approved && (sent || succeeded) {
            self.wrong(format!("{name} is {} and sent: {sent}, though its wish is {}", call.status, row.status));
        }
        let code = call.error_code.as_deref().unwrap_or_default();
        let reason = match row.status {
            ApprovalStatus::Approved => !matches!(code, "approval_denied" | "approval_expired"),
            ApprovalStatus::Denied => code != "approval_expired",
            ApprovalStatus::Expired => code != "approval_denied",
            ApprovalStatus::Canceled | ApprovalStatus::Pending => !matches!(code, "approval_denied" | "approval_expired"),
        };
        if !reason {
            self.wrong(format!("{name} ended as {code}, and its wish is {}", row.status));
        }
        let turn = self.turn_end(row.turn_id);
        if turn.is_none_or(|end| call.finished_at.is_none_or(|at| at > end)) {
            self.wrong(format!("{name} ended after its turn"));
        }
    }

    fn turn_end(&self, turn_id: Uuid) -> Option<jiff::Timestamp> {
        self.tables.turns.get(&turn_id).and_then(|turn| turn.finished_at)
    }
}
