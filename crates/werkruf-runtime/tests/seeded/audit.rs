//! What must hold once everything has settled, whatever happened before: the tables against each other, and against what the
//! outside saw. Numbers P… and I… are those of the reliability notes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use werkruf_contract::{EventType, TurnStatus, Uuid};
use werkruf_store::{CallRow, EventRow, MessageRow, TurnRow};

use crate::ledger::ProviderAccounts;
use crate::tables::{Tables, stream_of};
use crate::trace::short;

/// One look at everything.
pub struct Audit<'a> {
    /// One process at a time, and a database that always answered.
    pub orderly: bool,
    pub tables: &'a Tables,
    pub ledger: &'a ProviderAccounts,
    pub found: Vec<String>,
}

#[derive(Deserialize)]
struct StoredCall {
    id: String,
}

impl Audit<'_> {
    pub fn check(&mut self) {
        self.messages_and_turns();
        self.turns_end_once();
        self.events_without_holes();
        self.histories();
        self.calls_end();
        self.in_order_of_arrival();
        self.writes_in_order();
        self.effects();
        self.bills();
        self.words();
    }

    pub fn wrong(&mut self, what: String) {
        self.found.push(what);
    }

    /// I1, P1, P14: every acknowledged message has its one turn, and no key made two.
    fn messages_and_turns(&mut self) {
        let mut by_text: BTreeMap<&str, Vec<&MessageRow>> = BTreeMap::new();
        for row in self.tables.messages.values().filter(|row| row.role == "user") {
            by_text.entry(&row.content).or_default().push(row);
        }
        for (text, rows) in &by_text {
            if rows.len() != 1 {
                self.wrong(format!("{text} is stored {} times", rows.len()));
            }
        }
        let mut by_key: BTreeMap<&str, Uuid> = BTreeMap::new();
        for ack in &self.ledger.acks {
            let stored = by_text.get(ack.message.as_str()).and_then(|rows| rows.first()).and_then(|row| row.turn_id);
            if stored != Some(ack.turn_id) || !self.tables.turns.contains_key(&ack.turn_id) {
                self.wrong(format!("{} was acknowledged as {} and is gone", ack.message, short(ack.turn_id)));
            }
            if let Some(key) = &ack.key
                && *by_key.entry(key).or_insert(ack.turn_id) != ack.turn_id
            {
                self.wrong(format!("{key} made two turns"));
            }
        }
    }

    /// I2: every turn has an end, and says it once.
    fn turns_end_once(&mut self) {
        let mut events: BTreeMap<Uuid, Vec<&EventRow>> = BTreeMap::new();
        for row in self.tables.events.values() {
            events.entry(row.turn_id.unwrap_or_default()).or_default().push(row);
        }
        for turn in self.tables.turns.values() {
            let name = short(turn.id);
            if !turn.status.is_terminal() || turn.finished_at.is_none() {
                self.wrong(format!("turn {name} is {}", turn.status));
                continue;
            }
            if turn.takeovers > self.tables.claims.get(&turn.id).copied().unwrap_or(0) {
                self.wrong(format!("turn {name} was lost {} times, more often than anybody had it", turn.takeovers));
            }
            let events = events.remove(&turn.id).unwrap_or_default();
            let ends = events.iter().filter(|event| event.kind.ends_turn()).count();
            // A tool called outside any conversation has nobody to say `final` to.
            let silent = turn.conversation_id.is_none() && turn.status == TurnStatus::Completed;
            if ends != usize::from(!silent) {
                self.wrong(format!("turn {name} says {ends} times that it ended"));
            }
            let last = events.last().map(|event| event.kind);
            let expected = if turn.status == TurnStatus::Completed { EventType::Final } else { EventType::Error };
            if !silent && last != Some(expected) {
                self.wrong(format!("turn {name} is {} and ends with {last:?}", turn.status));
            }
            let inits = events.iter().filter(|event| event.kind == EventType::Init).count();
            if turn.kind == "chat" && (inits != 1 || events.first().is_none_or(|event| event.kind != EventType::Init)) {
                self.wrong(format!("turn {name} has {inits} init events"));
            }
        }
    }

    /// I5: numbers from 1 on, none missing; no lease is left behind.
    fn events_without_holes(&mut self) {
        let mut next: BTreeMap<Uuid, i64> = BTreeMap::new();
        let mut holes = Vec::new();
        for (stream_id, seq) in self.tables.events.keys() {
            let expected = next.entry(*stream_id).or_insert(1);
            if seq != expected {
                holes.push(format!("events of {} jump from {expected} to {seq}", short(*stream_id)));
            }
            *expected = seq + 1;
        }
        self.found.extend(holes);
        for (stream_id, lease) in &self.tables.leases {
            if lease.owner.is_some() {
                self.found.push(format!("the lease of {} was never given back", short(*stream_id)));
            }
        }
    }

    /// P19: each call has its one result directly after its assistant message; turns never mix.
    fn histories(&mut self) {
        for id in self.tables.conversations.keys() {
            let rows = self.tables.history(*id);
            if let Some(fault) = history_fault(&rows) {
                self.wrong(format!("history of {}: {fault}", short(*id)));
            }
            let mut blocks: Vec<Uuid> = rows.iter().filter_map(|row| row.turn_id).collect();
            blocks.dedup();
            // Others may run while a turn waits for a person's word, and only then.
            let mixed = |turn: &Uuid| {
                let parts = blocks.iter().filter(|block| *block == turn).count();
                parts > 1 + self.tables.parks.get(turn).copied().unwrap_or(0)
            };
            if blocks.iter().any(mixed) {
                let order: Vec<String> = blocks.into_iter().map(short).collect();
                self.wrong(format!("turns of {} ran into each other: {order:?}", short(*id)));
            }
        }
        let waiting = self.tables.messages.values().filter(|row| row.seq.is_none());
        let waiting: Vec<String> = waiting.map(|row| format!("{} never got its place", row.content)).collect();
        self.found.extend(waiting);
        let turns: Vec<Arc<TurnRow>> = self.tables.turns.values().filter(|turn| turn.status == TurnStatus::Completed).cloned().collect();
        for turn in turns.iter().filter(|turn| turn.kind == "chat") {
            let rows = self.tables.history(stream_of(turn));
            let said = rows.iter().rfind(|row| row.turn_id == Some(turn.id)).map(|row| row.content.clone());
            if said != turn.message {
                self.wrong(format!("turn {} answered {:?}, its history says {said:?}", short(turn.id), turn.message));
            }
        }
    }

    /// P4: every row has an end; its attempts are all there; clients were told once.
    fn calls_end(&mut self) {
        let mut told: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for event in self.tables.events.values() {
            if matches!(event.kind, EventType::ToolStarted | EventType::ToolFinished) {
                let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                let job = data["job_id"].as_str().unwrap_or_default().to_owned();
                *told.entry((job, event.kind.as_str())).or_default() += 1;
            }
        }
        for row in self.tables.calls.values() {
            let name = format!("{} {}", row.tool_name, short(row.id));
            if !row.status.is_terminal() || row.finished_at.is_none() {
                self.wrong(format!("{name} is {} for ever", row.status));
            }
            let earlier = self.tables.attempts.keys().filter(|(id, _)| *id == row.id).count();
            if earlier != usize::try_from(row.attempt.saturating_sub(1)).unwrap() {
                self.wrong(format!("{name} is at attempt {} with {earlier} before it", row.attempt));
            }
            let times = |kind: EventType| told.get(&(row.id.to_string(), kind.as_str())).copied().unwrap_or(0);
            if times(EventType::ToolFinished) != 1 || times(EventType::ToolStarted) != usize::from(row.attempt > 0) {
                let (started, finished) = (times(EventType::ToolStarted), times(EventType::ToolFinished));
                self.wrong(format!("{name}, attempt {}, was announced {started} times and finished {finished} times", row.attempt));
            }
        }
        for (job_id, well) in &self.ledger.answers {
            let row = self.tables.calls.get(job_id);
            let succeeded = row.map(|row| row.status == werkruf_contract::CallStatus::Succeeded);
            if succeeded != Some(*well) {
                self.found.push(format!("a client was told {well} of {}, the row says {:?}", short(*job_id), row.map(|row| row.status)));
            }
        }
    }

    /// P18: who was told that a message is stored, and then sends another, is answered in that order.
    fn in_order_of_arrival(&mut self) {
        let place = |turn_id: Uuid| self.tables.messages.values().find(|row| row.turn_id == Some(turn_id) && row.role == "user");
        let mut wrong = Vec::new();
        for earlier in self.ledger.acks.iter().filter(|_| self.orderly) {
            for later in self.ledger.acks.iter().filter(|later| earlier.told < later.sent) {
                let (Some(first), Some(second)) = (place(earlier.turn_id), place(later.turn_id)) else { continue };
                if first.conversation_id == second.conversation_id && first.seq > second.seq {
                    wrong.push(format!("{} was answered before {}, which came first", later.message, earlier.message));
                }
            }
        }
        self.found.extend(wrong);
    }

    /// P6: epochs never go back, one owner each, and nobody writes to a turn that has ended.
    fn writes_in_order(&mut self) {
        let mut newest: BTreeMap<Uuid, (i64, &str)> = BTreeMap::new();
        let mut wrong = Vec::new();
        for write in &self.tables.taken {
            let (stream, turn) = (short(write.stream_id), short(write.turn_id));
            if write.after_end {
                wrong.push(format!("{} wrote to turn {turn} after its end", write.owner));
            }
            let (epoch, owner) = newest.entry(write.stream_id).or_insert((write.epoch, &write.owner));
            if write.epoch < *epoch || (write.epoch == *epoch && write.owner != *owner) {
                wrong.push(format!("a stale write of epoch {} in {stream} after epoch {epoch}", write.epoch));
            }
            if write.epoch > *epoch {
                (*epoch, *owner) = (write.epoch, &write.owner);
            }
        }
        self.found.extend(wrong);
    }

    pub fn row(&self, job_id: Uuid) -> Option<&CallRow> {
        self.tables.calls.get(&job_id).map(Arc::as_ref)
    }
}

fn history_fault(rows: &[MessageRow]) -> Option<String> {
    let mut open: Vec<String> = Vec::new();
    for (row, place) in rows.iter().zip(1..) {
        if row.seq != Some(place) {
            return Some(format!("place {place} is missing"));
        }
        if row.role == "tool" {
            let id = row.tool_call_id.clone().unwrap_or_default();
            match open.iter().position(|call| *call == id) {
                Some(at) => drop(open.remove(at)),
                None => return Some(format!("place {place} is a result for {id}, which nobody waits for")),
            }
            continue;
        }
        if !open.is_empty() {
            return Some(format!("place {place} ({}) comes before the results of {open:?}", row.role));
        }
        let calls: Vec<StoredCall> = row.tool_calls.as_deref().map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default();
        open = calls.into_iter().map(|call| call.id).collect();
    }
    (!open.is_empty()).then(|| format!("no result for {open:?}"))
}
