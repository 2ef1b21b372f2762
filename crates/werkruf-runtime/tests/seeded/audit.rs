//! The invariants at the end of a run: the tables are consistent with each other and with the observations. Numbers P… and I…
//! are those of the reliability notes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use werkruf_contract::{EventType, TurnStatus, Uuid};
use werkruf_store::{CallRow, EventRow, MessageRow, TurnRow};

use crate::observations::Observations;
use crate::tables::{Tables, stream_of};
use crate::trace::short;

pub struct Audit<'a> {
    /// Only one process at a time, and a database that always answered.
    pub orderly: bool,
    pub tables: &'a Tables,
    pub observed: &'a Observations,
    pub violations: Vec<String>,
}

#[derive(Deserialize)]
struct StoredCall {
    id: String,
}

impl Audit<'_> {
    pub fn check(&mut self) {
        self.messages_and_turns();
        self.turns_end_once();
        self.events_without_gaps();
        self.histories();
        self.calls_end();
        self.in_order_of_arrival();
        self.writes_in_order();
        self.effects();
        self.granted();
        self.usage_rows();
        self.turns_without_model();
        self.approvals();
    }

    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// I1, P1, P14: every acknowledged message has its one turn, and no key made two.
    fn messages_and_turns(&mut self) {
        let mut by_text: BTreeMap<&str, Vec<&MessageRow>> = BTreeMap::new();
        for row in self.tables.messages.values().filter(|row| row.role == "user") {
            by_text.entry(&row.content).or_default().push(row);
        }
        for (text, rows) in &by_text {
            if rows.len() != 1 {
                self.violation(format!("{text} is stored {} times", rows.len()));
            }
        }
        let mut by_key: BTreeMap<&str, Uuid> = BTreeMap::new();
        for ack in &self.observed.acks {
            let stored = by_text.get(ack.message.as_str()).and_then(|rows| rows.first()).and_then(|row| row.turn_id);
            if stored != Some(ack.turn_id) || !self.tables.turns.contains_key(&ack.turn_id) {
                self.violation(format!("{} was acknowledged as {} and is gone", ack.message, short(ack.turn_id)));
            }
            if let Some(key) = &ack.key
                && *by_key.entry(key).or_insert(ack.turn_id) != ack.turn_id
            {
                self.violation(format!("{key} made two turns"));
            }
        }
    }

    /// I2: every turn has ended and sent exactly one final event.
    fn turns_end_once(&mut self) {
        let mut events: BTreeMap<Uuid, Vec<&EventRow>> = BTreeMap::new();
        for row in self.tables.events.values() {
            events.entry(row.turn_id.unwrap_or_default()).or_default().push(row);
        }
        for turn in self.tables.turns.values() {
            let name = short(turn.id);
            if !turn.status.is_terminal() || turn.finished_at.is_none() {
                self.violation(format!("turn {name} is {}", turn.status));
                continue;
            }
            if turn.takeovers > self.tables.claims.get(&turn.id).copied().unwrap_or(0) {
                self.violation(format!("turn {name} was taken over {} times, more often than it was claimed", turn.takeovers));
            }
            let events = events.remove(&turn.id).unwrap_or_default();
            let ends = events.iter().filter(|event| event.kind.ends_turn()).count();
            // A tool called outside any conversation sends no `final`.
            let silent = turn.conversation_id.is_none() && turn.status == TurnStatus::Completed;
            if ends != usize::from(!silent) {
                self.violation(format!("turn {name} has {ends} final events"));
            }
            let last = events.last().map(|event| event.kind);
            let expected = if turn.status == TurnStatus::Completed { EventType::Final } else { EventType::Error };
            if !silent && last != Some(expected) {
                self.violation(format!("turn {name} is {} and ends with {last:?}", turn.status));
            }
            let inits = events.iter().filter(|event| event.kind == EventType::Init).count();
            if turn.kind == "chat" && (inits != 1 || events.first().is_none_or(|event| event.kind != EventType::Init)) {
                self.violation(format!("turn {name} has {inits} init events"));
            }
        }
    }

    /// I5: event numbers start at 1 and have no gaps; every lease is released.
    fn events_without_gaps(&mut self) {
        let mut next: BTreeMap<Uuid, i64> = BTreeMap::new();
        let mut gaps = Vec::new();
        for (stream_id, seq) in self.tables.events.keys() {
            let expected = next.entry(*stream_id).or_insert(1);
            if seq != expected {
                gaps.push(format!("events of {} jump from {expected} to {seq}", short(*stream_id)));
            }
            *expected = seq + 1;
        }
        self.violations.extend(gaps);
        for (stream_id, lease) in &self.tables.leases {
            if lease.owner.is_some() {
                self.violations.push(format!("the lease of {} was never released", short(*stream_id)));
            }
        }
    }

    /// P19: each call has exactly one result directly after its assistant message; turns never mix.
    fn histories(&mut self) {
        for id in self.tables.conversations.keys() {
            let rows = self.tables.history(*id);
            if let Some(fault) = history_fault(&rows) {
                self.violation(format!("history of {}: {fault}", short(*id)));
            }
            let mut blocks: Vec<Uuid> = rows.iter().filter_map(|row| row.turn_id).collect();
            blocks.dedup();
            // Other turns may run only while a turn awaits approval.
            let mixed = |turn: &Uuid| {
                let parts = blocks.iter().filter(|block| *block == turn).count();
                parts > 1 + self.tables.approval_waits.get(turn).copied().unwrap_or(0)
            };
            if blocks.iter().any(mixed) {
                let order: Vec<String> = blocks.into_iter().map(short).collect();
                self.violation(format!("turns of {} are interleaved: {order:?}", short(*id)));
            }
        }
        let waiting = self.tables.messages.values().filter(|row| row.seq.is_none());
        let waiting: Vec<String> = waiting.map(|row| format!("{} never got its number", row.content)).collect();
        self.violations.extend(waiting);
        let turns: Vec<Arc<TurnRow>> = self.tables.turns.values().filter(|turn| turn.status == TurnStatus::Completed).cloned().collect();
        for turn in turns.iter().filter(|turn| turn.kind == "chat") {
            let rows = self.tables.history(stream_of(turn));
            let content = rows.iter().rfind(|row| row.turn_id == Some(turn.id)).map(|row| row.content.clone());
            if content != turn.message {
                self.violation(format!("turn {} answered {:?}, its history has {content:?}", short(turn.id), turn.message));
            }
        }
    }

    /// P4: every call has ended, all its attempts are stored, and its events were sent once.
    fn calls_end(&mut self) {
        let mut sent: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for event in self.tables.events.values() {
            if matches!(event.kind, EventType::ToolStarted | EventType::ToolFinished) {
                let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                let job = data["job_id"].as_str().unwrap_or_default().to_owned();
                *sent.entry((job, event.kind.as_str())).or_default() += 1;
            }
        }
        for row in self.tables.calls.values() {
            let name = format!("{} {}", row.tool_name, short(row.id));
            if !row.status.is_terminal() || row.finished_at.is_none() {
                self.violation(format!("{name} stays {}", row.status));
            }
            let earlier = self.tables.attempts.keys().filter(|(id, _)| *id == row.id).count();
            if earlier != usize::try_from(row.attempt.saturating_sub(1)).unwrap() {
                self.violation(format!("{name} is at attempt {} with {earlier} before it", row.attempt));
            }
            let times = |kind: EventType| sent.get(&(row.id.to_string(), kind.as_str())).copied().unwrap_or(0);
            if times(EventType::ToolFinished) != 1 || times(EventType::ToolStarted) != usize::from(row.attempt > 0) {
                let (started, finished) = (times(EventType::ToolStarted), times(EventType::ToolFinished));
                self.violation(format!("{name}, attempt {}, has {started} started and {finished} finished events", row.attempt));
            }
        }
        for (job_id, ok) in &self.observed.answers {
            let row = self.tables.calls.get(job_id);
            let succeeded = row.map(|row| row.status == werkruf_contract::CallStatus::Succeeded);
            if succeeded != Some(*ok) {
                self.violations.push(format!(
                    "a client received ok={ok} for {}, the row is {:?}",
                    short(*job_id),
                    row.map(|row| row.status)
                ));
            }
        }
    }

    /// P18: a message that is sent after another one was acknowledged is answered after it.
    fn in_order_of_arrival(&mut self) {
        let message = |turn_id: Uuid| self.tables.messages.values().find(|row| row.turn_id == Some(turn_id) && row.role == "user");
        let mut violations = Vec::new();
        for earlier in self.observed.acks.iter().filter(|_| self.orderly) {
            for later in self.observed.acks.iter().filter(|later| earlier.acknowledged < later.sent) {
                let (Some(first), Some(second)) = (message(earlier.turn_id), message(later.turn_id)) else { continue };
                if first.conversation_id == second.conversation_id && first.seq > second.seq {
                    violations.push(format!("{} was answered before {}, which came first", later.message, earlier.message));
                }
            }
        }
        self.violations.extend(violations);
    }

    /// P6: epochs never decrease, each epoch has one owner, and no write follows the end of a turn.
    fn writes_in_order(&mut self) {
        let mut newest: BTreeMap<Uuid, (i64, &str)> = BTreeMap::new();
        let mut violations = Vec::new();
        for write in &self.tables.writes {
            let (stream, turn) = (short(write.stream_id), short(write.turn_id));
            if write.after_end {
                violations.push(format!("{} wrote to turn {turn} after its end", write.owner));
            }
            let (epoch, owner) = newest.entry(write.stream_id).or_insert((write.epoch, &write.owner));
            if write.epoch < *epoch || (write.epoch == *epoch && write.owner != *owner) {
                violations.push(format!("a stale write of epoch {} in {stream} after epoch {epoch}", write.epoch));
            }
            if write.epoch > *epoch {
                (*epoch, *owner) = (write.epoch, &write.owner);
            }
        }
        self.violations.extend(violations);
    }

    pub fn row(&self, job_id: Uuid) -> Option<&CallRow> {
        self.tables.calls.get(&job_id).map(Arc::as_ref)
    }
}

fn history_fault(rows: &[MessageRow]) -> Option<String> {
    let mut open: Vec<String> = Vec::new();
    for (row, seq) in rows.iter().zip(1..) {
        if row.seq != Some(seq) {
            return Some(format!("number {seq} is missing"));
        }
        if row.role == "tool" {
            let id = row.tool_call_id.clone().unwrap_or_default();
            match open.iter().position(|call| *call == id) {
                Some(at) => drop(open.remove(at)),
                None => return Some(format!("number {seq} is a result for {id}, which is no open call")),
            }
            continue;
        }
        if !open.is_empty() {
            return Some(format!("number {seq} ({}) comes before the results of {open:?}", row.role));
        }
        let calls: Vec<StoredCall> = row.tool_calls.as_deref().map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default();
        open = calls.into_iter().map(|call| call.id).collect();
    }
    (!open.is_empty()).then(|| format!("no result for {open:?}"))
}
