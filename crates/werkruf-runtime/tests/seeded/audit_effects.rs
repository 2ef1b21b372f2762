//! The part of the audit that is about the world: what was sent, what was carried out, and what it cost.

use std::collections::{BTreeMap, BTreeSet};

use werkruf_contract::{CallKind, CallStatus, Effect, TurnStatus, Uuid};

use crate::audit::Audit;
use crate::ledger::Send;
use crate::trace::short;

impl Audit<'_> {
    /// P11 to P13, P15, P21, I6.
    pub fn effects(&mut self) {
        let mut by_job: BTreeMap<Uuid, Vec<&Send>> = BTreeMap::new();
        for send in &self.ledger.sends {
            by_job.entry(send.job_id).or_default().push(send);
        }
        let mut keys: BTreeMap<&str, Uuid> = BTreeMap::new();
        let mut paid: BTreeMap<(Uuid, String), u32> = BTreeMap::new();
        for (job_id, sends) in &by_job {
            let name = short(*job_id);
            let Some(row) = self.row(*job_id).cloned() else {
                self.wrong(format!("{name} was sent and has no row"));
                continue;
            };
            if sends.iter().map(|send| &send.key).collect::<BTreeSet<_>>().len() != 1 {
                self.wrong(format!("{name} was sent under several keys"));
            }
            if row.retry_of.is_none() && *keys.entry(&sends[0].key).or_insert(*job_id) != *job_id {
                self.wrong(format!("{name} has the key of another call"));
            }
            if sends.iter().any(|send| send.turn_id != row.turn_id || send.effect != row.effect || send.attempt > row.attempt) {
                self.wrong(format!("{name} was sent otherwise than its row says"));
            }
            if sends.iter().any(|send| self.ledger.cut.contains(&send.n)) {
                self.wrong(format!("{name} was sent from an answer that was cut off"));
            }
            let effects: u32 = sends.iter().map(|send| send.effects).sum();
            if row.effect == Effect::Once {
                self.once(&row, sends.len(), effects);
                if row.retry_of.is_none() {
                    *paid.entry((row.turn_id, row.dedupe_key.clone().unwrap_or_default())).or_default() += effects;
                }
            }
            if row.effect == Effect::Idempotent && effects > 1 {
                self.wrong(format!("{name} was carried out {effects} times"));
            }
            if row.status == CallStatus::Succeeded
                && row.dedupe_of.is_none()
                && row.effect != Effect::Read
                && self.kept(&sends[0].key) + effects == 0
            {
                self.wrong(format!("{name} succeeded, but nothing was carried out"));
            }
        }
        for ((turn_id, key), effects) in paid {
            if effects > 1 {
                self.wrong(format!("turn {} had the same thing done {effects} times ({key})", short(turn_id)));
            }
        }
        let unsent: Vec<String> = self
            .tables
            .calls
            .values()
            // What the provider runs itself is sent by nobody here.
            .filter(|row| row.kind == CallKind::Function)
            .filter(|row| row.status == CallStatus::Succeeded && row.dedupe_of.is_none() && !by_job.contains_key(&row.id))
            .map(|row| format!("{} succeeded without being sent", short(row.id)))
            .collect();
        self.found.extend(unsent);
    }

    fn kept(&self, key: &str) -> u32 {
        self.ledger.kept.get(key).map_or(0, |times| u32::try_from(*times).unwrap())
    }

    fn once(&mut self, row: &werkruf_store::CallRow, sends: usize, effects: u32) {
        let name = short(row.id);
        if sends > 1 {
            self.wrong(format!("{name} is a call to be sent once, and was sent {sends} times"));
        }
        let unknown = row.error_code.as_deref() == Some("outcome_unknown");
        if effects > 0 && row.status != CallStatus::Succeeded && !unknown {
            let code = row.error_code.as_deref().unwrap_or("no code");
            self.wrong(format!("{name} was carried out, but its row says {} with {code}", row.status));
        }
    }

    /// P25, I8: what was asked of the model is paid for.
    pub fn bills(&mut self) {
        let by_text =
            |text: &str| self.tables.messages.values().find(|row| row.role == "user" && row.content == text).and_then(|row| row.turn_id);
        let mut asked: BTreeMap<Uuid, (usize, BTreeSet<&str>, i64)> = BTreeMap::new();
        let mut strangers = Vec::new();
        for request in &self.ledger.asked {
            let Some(turn_id) = by_text(&request.message) else {
                strangers.push(format!("the model was asked about {}, which is not stored", request.message));
                continue;
            };
            let sum = asked.entry(turn_id).or_default();
            sum.0 += 1;
            sum.1.insert(&request.process);
            sum.2 += request.reported.unwrap_or(0);
        }
        self.found.extend(strangers);
        for (turn_id, (sends, processes, reported)) in asked {
            let rows: Vec<_> = self.tables.usage.values().filter(|(turn, _)| *turn == turn_id).map(|(_, row)| row.clone()).collect();
            let Some(turn) = self.tables.turns.get(&turn_id) else { continue };
            // Whoever goes on after a crash knows of one lost request at most, and books that.
            let claims = self.tables.claims.get(&turn_id).copied().unwrap_or(0);
            let undisturbed = turn.takeovers == 0 && processes.len() == 1 && (claims <= 1 || !self.tables.shared);
            // A process that was stopped and lost the turn meanwhile can book nothing, whatever it asked.
            let least = match (undisturbed, self.tables.shared) {
                (true, _) => sends,
                (false, true) => 1,
                (false, false) => processes.len(),
            };
            if rows.len() < least {
                self.wrong(format!("turn {} asked {sends} times from {processes:?} and has {} bills", short(turn_id), rows.len()));
            }
            // One that was canceled or ran out of time may have been sending just then.
            if undisturbed && turn.status == TurnStatus::Completed && rows.len() > sends {
                self.wrong(format!("turn {} asked {sends} times and has {} bills", short(turn_id), rows.len()));
            }
            let booked: i64 = rows.iter().filter(|row| !row.estimated).map(|row| row.tokens_total).sum();
            if undisturbed && booked != reported {
                self.wrong(format!("turn {} was told of {reported} tokens and booked {booked}", short(turn_id)));
            }
        }
    }
}
