//! A subscriber of a stream: every numbered event it receives must be a stored row, in order and without gaps, and the text it
//! assembles must be the stored text. A subscriber of a conversation that misses a number disconnects, as a real one would to read the rows.

use std::sync::Arc;

use werkruf_contract::{AssistantReset, AssistantSnapshot, AssistantToken, EventType, Uuid};
use werkruf_runtime::{Joined, LiveEvent, PartialAnswer, Runtime, SubscribeOptions, Subscription};
use werkruf_store::{EventRow, ReadLimit, StreamKey};

use crate::process::Process;
use crate::trace::short;
use crate::world::World;

pub struct Subscriber {
    world: Arc<World>,
    process: Arc<Process>,
    stream_id: Uuid,
    /// Set if the subscription is for one turn.
    turn_id: Option<Uuid>,
    last_seq: i64,
    /// The last row that it read when it joined; the subscription may repeat rows up to this one.
    joined_at: i64,
    /// The partial answer of the current turn and step.
    shown: Option<PartialAnswer>,
    /// The text of the step may be in the rows only, or from another process, which shows it about a second late.
    late: bool,
    /// How many processes had started the turn when the subscriber received its last reset.
    reset_after: Option<(Uuid, u32)>,
}

impl Subscriber {
    pub fn of_turn(world: &Arc<World>, process: &Arc<Process>, stream_id: Uuid, turn_id: Uuid) -> Self {
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        Self { world, process, stream_id, turn_id: Some(turn_id), last_seq: 0, joined_at: 0, shown: None, late: false, reset_after: None }
    }

    /// Has the events up to this number, and joins a conversation, or one turn of it, perhaps at another process.
    pub fn joining(world: &Arc<World>, process: &Arc<Process>, stream_id: Uuid, turn_id: Option<Uuid>, after: i64) -> Self {
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        Self { world, process, stream_id, turn_id, last_seq: after, joined_at: 0, shown: None, late: true, reset_after: None }
    }

    /// False if a number is missing.
    fn receive(&mut self, event: &LiveEvent) -> bool {
        if let Some(seq) = event.seq {
            if seq <= self.joined_at {
                return true;
            }
            if self.turn_id.is_none() {
                if seq <= self.last_seq && !self.world.faults.shared {
                    return true;
                }
                if seq > self.last_seq + 1 && !self.world.faults.shared {
                    return false;
                }
                if seq != self.last_seq + 1 {
                    // Between processes events are sent in the order of the rows.
                    self.world.violated(format!("a subscriber of {} received {seq} after {}", short(self.stream_id), self.last_seq));
                }
            }
            self.check_row(seq, event);
            self.last_seq = seq;
        }
        self.assemble(event);
        true
    }

    /// False if one of them ends the turn that is read.
    fn receive_rows(&mut self, rows: &[EventRow]) -> bool {
        let ended = self.turn_id.is_some() && rows.iter().any(|row| row.kind.ends_turn());
        for row in rows {
            let (turn_id, data) = (row.turn_id.unwrap(), Arc::from(row.data.as_str()));
            self.late = true;
            self.receive(&LiveEvent { seq: Some(row.seq), kind: row.kind, turn_id, data, at: Some(row.created_at) });
        }
        self.joined_at = self.last_seq;
        !ended
    }

    fn assemble(&mut self, event: &LiveEvent) {
        match event.kind {
            EventType::AssistantToken => {
                let token: AssistantToken = serde_json::from_str(&event.data).unwrap();
                let position = (event.turn_id, token.step);
                let shown = self.shown.take().filter(|shown| (shown.turn_id, shown.step) == position);
                let mut shown = shown.unwrap_or(PartialAnswer { turn_id: event.turn_id, step: token.step, content: String::new() });
                shown.content.push_str(&token.content);
                self.shown = Some(shown);
            }
            EventType::AssistantReset => {
                let reset: AssistantReset = serde_json::from_str(&event.data).unwrap();
                let is_reset = |shown: &PartialAnswer| (shown.turn_id, shown.step) == (reset.turn_id, reset.step);
                self.shown = self.shown.take().filter(|shown| !is_reset(shown) && !self.is_stored(shown));
                self.reset_after = Some((reset.turn_id, self.claims(reset.turn_id)));
            }
            EventType::AssistantSnapshot if event.seq.is_none() => {
                let AssistantSnapshot { content, step, turn_id, .. } = serde_json::from_str(&event.data).unwrap();
                self.world.count("texts received from another process");
                self.shown = Some(PartialAnswer { turn_id, step, content });
            }
            EventType::AssistantSnapshot => {
                let snapshot: AssistantSnapshot = serde_json::from_str(&event.data).unwrap();
                self.shown = self.shown.take().filter(|shown| shown.step == snapshot.step);
                self.late &= !self.world.faults.shared;
                self.compare(event.turn_id, &snapshot.content);
            }
            EventType::Final => {
                let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                let chat = self.world.tables.lock().unwrap().turns.get(&event.turn_id).is_some_and(|turn| turn.kind == "chat");
                // A direct tool call has no text.
                if chat {
                    self.compare(event.turn_id, data["message"]["content"].as_str().unwrap_or_default());
                }
            }
            // This includes the error of a queued turn that was canceled before it started.
            EventType::Error => self.shown = self.shown.take().filter(|shown| shown.turn_id != event.turn_id),
            EventType::Init
            | EventType::ToolStarted
            | EventType::ToolProgress
            | EventType::ToolFinished
            | EventType::ApprovalRequired
            | EventType::Debug => {}
        }
    }

    fn compare(&mut self, turn_id: Uuid, stored: &str) {
        let shown = self.shown.take().filter(|shown| shown.turn_id == turn_id).map(|shown| shown.content).unwrap_or_default();
        // Text from another process is about a second old; the text of a turn that was taken over meanwhile is void.
        let shared = self.world.faults.shared;
        let known = self.reset_after.filter(|(of, _)| *of == turn_id).map_or(1, |(_, claims)| claims);
        let taken_over = || self.claims(turn_id) > known;
        let matches = if shared {
            stored.starts_with(&shown) || taken_over() || self.late
        } else {
            shown == stored || (self.late && stored.starts_with(&shown))
        };
        if !matches {
            self.world.violated(format!("a client of {} assembled {shown:?} where {stored:?} is stored", short(turn_id)));
        }
        self.late = false;
    }

    /// Whether a row has the text of this step. A client that knows the row may receive the text once more.
    fn is_stored(&self, shown: &PartialAnswer) -> bool {
        let tables = self.world.tables.lock().unwrap();
        let rows = tables.events.range((self.stream_id, 0)..=(self.stream_id, i64::MAX)).map(|(_, row)| row);
        let mut snapshots = rows.filter(|row| row.kind == EventType::AssistantSnapshot && row.turn_id == Some(shown.turn_id));
        snapshots.any(|row| {
            let snapshot: AssistantSnapshot = serde_json::from_str(&row.data).unwrap();
            snapshot.step == shown.step && snapshot.content.starts_with(&shown.content)
        })
    }

    fn claims(&self, turn_id: Uuid) -> u32 {
        self.world.tables.lock().unwrap().claims.get(&turn_id).copied().unwrap_or(0)
    }

    fn check_row(&self, seq: i64, event: &LiveEvent) {
        let tables = self.world.tables.lock().unwrap();
        let row = tables.events.get(&(self.stream_id, seq));
        let same = row.is_some_and(|row| row.kind == event.kind && row.turn_id == Some(event.turn_id));
        let between = tables.events.range((self.stream_id, (self.last_seq + 1).min(seq))..(self.stream_id, seq));
        // Two resets in a row count as one.
        let twice = |kind: EventType| kind == EventType::AssistantReset && event.kind == kind;
        let missed = between.filter(|(_, row)| row.turn_id == self.turn_id && !twice(row.kind)).count();
        drop(tables);
        if !same {
            self.world.violated(format!("a client received event {seq} ({}), which is no row", event.kind));
        }
        if seq <= self.last_seq || missed > 0 {
            let (turn, kind, last) = (short(event.turn_id), event.kind, self.last_seq);
            self.world.violated(format!("a client of {turn} received {kind} {seq} after {last}, {missed} missing"));
        }
    }
}

/// Joins as the API does for its clients, and reads.
pub async fn join_stream(mut subscriber: Subscriber, runtime: Runtime, stream: StreamKey) {
    loop {
        let options = SubscribeOptions { turn_id: subscriber.turn_id, debug: false, after: subscriber.last_seq };
        match runtime.join(stream, options, ReadLimit::rows(8)).await {
            Ok(Joined::Behind(rows)) if subscriber.receive_rows(&rows) => {}
            Ok(Joined::Live { rows, partial, events }) => {
                subscriber.receive_rows(&rows);
                subscriber.shown = partial.or(subscriber.shown);
                subscriber.late = subscriber.world.faults.shared;
                return read_stream(subscriber, events).await;
            }
            Ok(Joined::Behind(_)) | Err(_) => return,
        }
    }
}

/// Reads until the stream ends or the process is dead.
pub async fn read_stream(mut subscriber: Subscriber, mut events: Subscription) {
    let name = subscriber.turn_id.map(|turn_id| (subscriber.process.name.clone(), turn_id));
    if let Some(name) = &name {
        subscriber.world.observed.lock().unwrap().subscribed.insert(name.clone());
    }
    while let Some(event) = events.recv().await {
        if subscriber.process.is_dead() || !subscriber.receive(&event) {
            break;
        }
    }
    if let Some(name) = &name {
        subscriber.world.observed.lock().unwrap().subscribed.remove(name);
    }
}
