//! Clients that approve and deny calls: too late, twice, in contradiction, or for a turn that has ended.

use werkruf_contract::{ApprovalStatus, Uuid};
use werkruf_runtime::{Decider, Refusal};
use werkruf_store::Author;

use crate::client::Client;
use crate::trace::short;

impl Client {
    /// Decides a pending approval, and sometimes one that is decided already.
    pub async fn decide(&self) {
        let rng = &self.world.rng;
        let all: Vec<(Uuid, ApprovalStatus)> =
            self.world.tables.lock().unwrap().approvals.values().map(|row| (row.id, row.status)).collect();
        let open: Vec<(Uuid, ApprovalStatus)> = all.iter().copied().filter(|(_, status)| *status == ApprovalStatus::Pending).collect();
        let from = if rng.permille(200) { &all } else { &open };
        let Some((id, _)) = rng.pick(from).copied() else { return };
        self.send_decision(id).await;
    }

    /// Decides every approval in the phase without faults.
    pub async fn decide_all(self) {
        loop {
            self.world.rest(500, 8000).await;
            let next = {
                let tables = self.world.tables.lock().unwrap();
                tables.approvals.values().find(|row| row.status == ApprovalStatus::Pending).map(|row| row.id)
            };
            if let Some(id) = next {
                self.send_decision(id).await;
            }
        }
    }

    async fn send_decision(&self, id: Uuid) {
        let (rng, principal) = (&self.world.rng, &self.world.principal);
        let Some(member) = self.cluster.any() else { return };
        let yes = rng.permille(700);
        // With scope admin: nobody here has the role that decides on tainted calls.
        let who = Decider {
            tenant_id: principal.tenant_id,
            person: Some(principal),
            admin: true,
            credential: "key:1",
            author: &Author::server(),
        };
        self.world.observed.lock().unwrap().decisions_sent.push((id, yes));
        let answer = self.request(&member, 5000, member.runtime.decide(who, id, yes)).await;
        self.world.note(
            &self.name,
            format_args!(
                "{} {}: {:?}",
                if yes { "approves" } else { "denies" },
                short(id),
                answer.as_ref().map(|answer| answer.as_ref().map(|row| row.status))
            ),
        );
        self.world.count("decisions");
        match answer {
            Some(Ok(row)) => {
                let expected = if yes { ApprovalStatus::Approved } else { ApprovalStatus::Denied };
                if row.status != expected {
                    self.world.violated(format!("{} should be {expected} and is {}", short(id), row.status));
                }
                self.world.observed.lock().unwrap().decisions_acknowledged.push((id, row.status));
            }
            Some(Err(Refusal::Conflict { .. })) => self.world.count("decisions that came too late"),
            Some(Err(Refusal::UnknownApproval | Refusal::NotTheApprover { .. })) => {
                self.world.violated(format!("an allowed decision about {} was rejected", short(id)));
            }
            Some(Err(_)) | None => {}
        }
    }
}
