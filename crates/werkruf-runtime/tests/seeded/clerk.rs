//! Whoever gives or refuses the word: too late, twice, one against the other, or for somebody who is gone.

use werkruf_contract::{ApprovalStatus, Uuid};
use werkruf_runtime::{Decider, Refusal};

use crate::client::Client;
use crate::trace::short;

impl Client {
    /// One that waits, mostly; now and then one that is long decided.
    pub async fn decide(&self) {
        let dice = &self.world.dice;
        let all: Vec<(Uuid, ApprovalStatus)> =
            self.world.tables.lock().unwrap().approvals.values().map(|row| (row.id, row.status)).collect();
        let open: Vec<(Uuid, ApprovalStatus)> = all.iter().copied().filter(|(_, status)| *status == ApprovalStatus::Pending).collect();
        let from = if dice.permille(200) { &all } else { &open };
        let Some((id, _)) = dice.pick(from).copied() else { return };
        self.say(id).await;
    }

    /// In good weather: everything that comes, until nobody asks any more.
    pub async fn decide_all(self) {
        loop {
            self.world.rest(500, 8000).await;
            let next = {
                let tables = self.world.tables.lock().unwrap();
                tables.approvals.values().find(|row| row.status == ApprovalStatus::Pending).map(|row| row.id)
            };
            if let Some(id) = next {
                self.say(id).await;
            }
        }
    }

    async fn say(&self, id: Uuid) {
        let (dice, person) = (&self.world.dice, &self.world.person);
        let Some(member) = self.cluster.any() else { return };
        let yes = dice.permille(700);
        let who = Decider { tenant_id: person.tenant_id, person: Some(person), admin: false, signature: "" };
        self.world.ledger.lock().unwrap().words.push((id, yes));
        let said = self.asks(&member, 5000, member.runtime.decide(who, id, yes)).await;
        self.world.note(
            &self.name,
            format_args!(
                "{} {}: {:?}",
                if yes { "approves" } else { "denies" },
                short(id),
                said.as_ref().map(|said| said.as_ref().map(|row| row.status))
            ),
        );
        self.world.count("decisions");
        match said {
            Some(Ok(row)) => {
                let meant = if yes { ApprovalStatus::Approved } else { ApprovalStatus::Denied };
                if row.status != meant {
                    self.world.violated(format!("{} was to be {meant} and is {}", short(id), row.status));
                }
                self.world.ledger.lock().unwrap().decided.push((id, row.status));
            }
            Some(Err(Refusal::Conflict { .. })) => self.world.count("decisions that came too late"),
            Some(Err(Refusal::UnknownApproval | Refusal::NotTheApprover { .. })) => {
                self.world.violated(format!("whoever may decide {} was not let to", short(id)));
            }
            Some(Err(_)) | None => {}
        }
    }
}
