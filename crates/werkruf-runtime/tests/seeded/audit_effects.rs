//! The audit of effects: which requests were sent and executed, and their usage rows.

use std::collections::{BTreeMap, BTreeSet};

use werkruf_contract::{ApprovalStatus, CallKind, CallStatus, Effect, TurnStatus, Uuid};

use crate::audit::Audit;
use crate::observations::Send;
use crate::trace::short;

impl Audit<'_> {
    /// P11 to P13, P15, P21, I6.
    pub fn effects(&mut self) {
        let mut by_job: BTreeMap<Uuid, Vec<&Send>> = BTreeMap::new();
        for send in &self.observed.sends {
            by_job.entry(send.job_id).or_default().push(send);
        }
        let mut keys: BTreeMap<&str, Uuid> = BTreeMap::new();
        let mut once_effects: BTreeMap<(Uuid, String), u32> = BTreeMap::new();
        for (job_id, sends) in &by_job {
            let name = short(*job_id);
            let Some(row) = self.row(*job_id).cloned() else {
                self.violation(format!("{name} was sent and has no row"));
                continue;
            };
            if sends.iter().map(|send| &send.key).collect::<BTreeSet<_>>().len() != 1 {
                self.violation(format!("{name} was sent under several keys"));
            }
            if row.retry_of.is_none() && *keys.entry(&sends[0].key).or_insert(*job_id) != *job_id {
                self.violation(format!("{name} has the key of another call"));
            }
            if sends.iter().any(|send| send.turn_id != row.turn_id || send.effect != row.effect || send.attempt > row.attempt) {
                self.violation(format!("{name} was sent with other data than its row has"));
            }
            if sends.iter().any(|send| self.observed.cut.contains(&send.n)) {
                self.violation(format!("{name} was sent from a response that was cut off"));
            }
            let effects: u32 = sends.iter().map(|send| send.effects).sum();
            if row.effect == Effect::Once {
                self.once(&row, sends.len(), effects);
                if row.retry_of.is_none() {
                    *once_effects.entry((row.turn_id, row.dedupe_key.clone().unwrap_or_default())).or_default() += effects;
                }
            }
            if row.effect == Effect::Idempotent && effects > 1 {
                self.violation(format!("{name} was executed {effects} times"));
            }
            if row.status == CallStatus::Succeeded
                && row.dedupe_of.is_none()
                && row.effect != Effect::Read
                && self.executions(&sends[0].key) + effects == 0
            {
                self.violation(format!("{name} succeeded, but was not executed"));
            }
        }
        for ((turn_id, key), effects) in once_effects {
            if effects > 1 {
                self.violation(format!("turn {} executed the same once call {effects} times ({key})", short(turn_id)));
            }
        }
        let unsent: Vec<String> = self
            .tables
            .calls
            .values()
            // Provider items are executed by the provider.
            .filter(|row| row.kind == CallKind::Function)
            .filter(|row| row.status == CallStatus::Succeeded && row.dedupe_of.is_none() && !by_job.contains_key(&row.id))
            .map(|row| format!("{} succeeded without being sent", short(row.id)))
            .collect();
        self.violations.extend(unsent);
    }

    /// The provider received each approval once, after it was given, and the row of the call says what became of it.
    pub fn granted(&mut self) {
        for (request, granted) in &self.observed.granted {
            let row = self.tables.calls.values().find(|row| row.item_id.as_ref() == Some(request) && row.effect == Effect::Once);
            let Some(row) = row.cloned() else {
                self.violation(format!("{request} was approved and has no row"));
                continue;
            };
            if granted.received > 1 {
                self.violation(format!("the provider received the approval of {request} {} times", granted.received));
            }
            let approved =
                self.tables.approvals.values().any(|row_of| row_of.call_id == row.id && row_of.status == ApprovalStatus::Approved);
            if !approved {
                self.violation(format!("the provider received an approval of {request} that was not given"));
            }
            let known = row.status == CallStatus::Succeeded || row.error_code.as_deref() == Some("provider_call_failed");
            if granted.effects > 0 && !known && row.error_code.as_deref() != Some("outcome_unknown") {
                let code = row.error_code.as_deref().unwrap_or("no code");
                self.violation(format!("{request} was carried out, but its row is {} with {code}", row.status));
            }
        }
        let asked = self.tables.calls.values().filter(|row| row.kind == CallKind::Mcp && row.effect == Effect::Once);
        let effects = |row: &werkruf_store::CallRow| {
            row.item_id.as_ref().and_then(|request| self.observed.granted.get(request)).map_or(0, |granted| granted.effects)
        };
        let invented = asked.filter(|row| row.status == CallStatus::Succeeded && effects(row) == 0);
        let invented: Vec<String> = invented.map(|row| format!("{} succeeded, but the provider did not run it", short(row.id))).collect();
        self.violations.extend(invented);
    }

    fn executions(&self, key: &str) -> u32 {
        self.observed.keys.get(key).map_or(0, |times| u32::try_from(*times).unwrap())
    }

    fn once(&mut self, row: &werkruf_store::CallRow, sends: usize, effects: u32) {
        let name = short(row.id);
        if sends > 1 {
            self.violation(format!("{name} is a once call and was sent {sends} times"));
        }
        let unknown = row.error_code.as_deref() == Some("outcome_unknown");
        if effects > 0 && row.status != CallStatus::Succeeded && !unknown {
            let code = row.error_code.as_deref().unwrap_or("no code");
            self.violation(format!("{name} was executed, but its row is {} with {code}", row.status));
        }
    }

    /// P25, I8: every model request has a usage row.
    pub fn usage_rows(&mut self) {
        let by_text =
            |text: &str| self.tables.messages.values().find(|row| row.role == "user" && row.content == text).and_then(|row| row.turn_id);
        let mut requests: BTreeMap<Uuid, (usize, BTreeSet<&str>, i64)> = BTreeMap::new();
        let mut unknown = Vec::new();
        for request in &self.observed.model_requests {
            let Some(turn_id) = by_text(&request.message) else {
                unknown.push(format!("a model request was about {}, which is not stored", request.message));
                continue;
            };
            let sum = requests.entry(turn_id).or_default();
            sum.0 += 1;
            sum.1.insert(&request.process);
            sum.2 += request.reported.unwrap_or(0);
        }
        self.violations.extend(unknown);
        for (turn_id, (sends, processes, reported)) in requests {
            let rows: Vec<_> = self.tables.usage.values().filter(|(turn, _)| *turn == turn_id).map(|(_, row)| row.clone()).collect();
            let Some(turn) = self.tables.turns.get(&turn_id) else { continue };
            // The process that resumes a turn after a crash writes a usage row for one lost request at most.
            let claims = self.tables.claims.get(&turn_id).copied().unwrap_or(0);
            let unsent = || self.observed.unsent_requests.iter().filter(|request| by_text(&request.message) == Some(turn_id));
            let one_process = processes.len() == 1 && unsent().all(|request| processes.contains(&*request.process));
            let undisturbed = turn.takeovers == 0 && one_process && (claims <= 1 || !self.tables.shared);
            // A process that was stopped and lost the turn meanwhile can write no usage row for its requests.
            let least = match (undisturbed, self.tables.shared) {
                (true, _) => sends,
                (false, true) => 1,
                (false, false) => processes.len(),
            };
            if rows.len() < least {
                self.violation(format!(
                    "turn {} sent {sends} model requests from {processes:?} and has {} usage rows",
                    short(turn_id),
                    rows.len()
                ));
            }
            // A request that was given up may have been about to leave. So may one of a turn that was canceled or timed out.
            let given_up = unsent().filter(|request| !request.refused).count();
            if undisturbed && turn.status == TurnStatus::Completed && rows.len() > sends + given_up {
                self.violation(format!("turn {} sent {sends} model requests and has {} usage rows", short(turn_id), rows.len()));
            }
            let recorded: i64 = rows.iter().filter(|row| !row.estimated).map(|row| row.tokens_total).sum();
            if undisturbed && recorded != reported {
                self.violation(format!("turn {} received {reported} tokens and recorded {recorded}", short(turn_id)));
            }
        }
    }
}
