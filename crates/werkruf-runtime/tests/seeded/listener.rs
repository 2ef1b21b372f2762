//! A client's ear: every numbered event it hears must be a row already, in order, none left out; and the text it pieces together
//! must be the text that is stored. Whoever follows a conversation and finds a number missing comes back and reads the rows.

use std::sync::Arc;

use werkruf_contract::{AssistantReset, AssistantSnapshot, AssistantToken, EventType, Uuid};
use werkruf_runtime::{LiveEvent, PartialAnswer, Subscription};

use crate::process::Process;
use crate::trace::short;
use crate::world::World;

pub struct Listener {
    world: Arc<World>,
    process: Arc<Process>,
    stream_id: Uuid,
    /// Only this turn.
    turn_id: Option<Uuid>,
    last_seq: i64,
    /// The turn and step that are being written, and their text.
    shown: Option<PartialAnswer>,
    /// Joined while a step was being written or about to be: its text may be in the rows only.
    late: bool,
}

impl Listener {
    pub fn of_turn(world: &Arc<World>, process: &Arc<Process>, stream_id: Uuid, turn_id: Uuid) -> Self {
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        Self { world, process, stream_id, turn_id: Some(turn_id), last_seq: 0, shown: None, late: false }
    }

    /// Comes later than the turn began, perhaps to another process.
    pub fn joining(world: &Arc<World>, process: &Arc<Process>, ids: (Uuid, Uuid), after: i64, shown: Option<PartialAnswer>) -> Self {
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        Self { world, process, stream_id: ids.0, turn_id: Some(ids.1), last_seq: after, shown, late: true }
    }

    /// Has read the rows there are, and got the text so far.
    pub fn of_conversation(world: &Arc<World>, process: &Arc<Process>, stream_id: Uuid, shown: Option<PartialAnswer>) -> Self {
        let last_seq = world.tables.lock().unwrap().leases.get(&stream_id).map_or(0, |lease| lease.next_event - 1);
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        Self { world, process, stream_id, turn_id: None, last_seq, shown, late: true }
    }

    /// False when a number is missing.
    fn hear(&mut self, event: &LiveEvent) -> bool {
        if let Some(seq) = event.seq {
            if self.turn_id.is_none() {
                if seq <= self.last_seq && !self.world.weather.shared {
                    return true;
                }
                if seq > self.last_seq + 1 && !self.world.weather.shared {
                    return false;
                }
                if seq != self.last_seq + 1 {
                    // Between processes the order of the rows is the order they are told in.
                    self.world.violated(format!("who follows {} heard {seq} after {}", short(self.stream_id), self.last_seq));
                }
            }
            self.check_row(seq, event);
            self.last_seq = seq;
        }
        self.piece_together(event);
        true
    }

    fn piece_together(&mut self, event: &LiveEvent) {
        match event.kind {
            EventType::AssistantToken => {
                let token: AssistantToken = serde_json::from_str(&event.data).unwrap();
                let place = (event.turn_id, token.step);
                let shown = self.shown.take().filter(|shown| (shown.turn_id, shown.step) == place);
                let mut shown = shown.unwrap_or(PartialAnswer { turn_id: event.turn_id, step: token.step, content: String::new() });
                shown.content.push_str(&token.content);
                self.shown = Some(shown);
            }
            EventType::AssistantReset => {
                let reset: AssistantReset = serde_json::from_str(&event.data).unwrap();
                self.shown = self.shown.take().filter(|shown| (shown.turn_id, shown.step) != (reset.turn_id, reset.step));
            }
            EventType::AssistantSnapshot if event.seq.is_none() => {
                let AssistantSnapshot { content, step, turn_id } = serde_json::from_str(&event.data).unwrap();
                self.world.count("texts shown elsewhere");
                self.shown = Some(PartialAnswer { turn_id, step, content });
            }
            EventType::AssistantSnapshot => {
                let snapshot: AssistantSnapshot = serde_json::from_str(&event.data).unwrap();
                self.shown = self.shown.take().filter(|shown| shown.step == snapshot.step);
                self.late = false;
                self.compare(event.turn_id, &snapshot.content);
            }
            EventType::Final => {
                let said: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                let chat = self.world.tables.lock().unwrap().turns.get(&event.turn_id).is_some_and(|turn| turn.kind == "chat");
                // A tool called directly writes no text.
                if chat {
                    self.compare(event.turn_id, said["message"]["content"].as_str().unwrap_or_default());
                }
            }
            // Also that of a turn behind this one, which was canceled before it began.
            EventType::Error => self.shown = self.shown.take().filter(|shown| shown.turn_id != event.turn_id),
            EventType::Init | EventType::ToolStarted | EventType::ToolFinished | EventType::ApprovalRequired | EventType::Debug => {}
        }
    }

    fn compare(&mut self, turn_id: Uuid, said: &str) {
        let shown = self.shown.take().filter(|shown| shown.turn_id == turn_id).map(|shown| shown.content).unwrap_or_default();
        // From another process text comes in pieces about a second old; what a turn said that was taken over meanwhile is void.
        let shared = self.world.weather.shared;
        let taken_over = || self.world.tables.lock().unwrap().claims.get(&turn_id).is_some_and(|times| *times > 1);
        let right = if shared { said.starts_with(&shown) || taken_over() } else { shown == said };
        if !right && !self.late {
            self.world.violated(format!("a client of {} pieced together {shown:?} where {said:?} was said", short(turn_id)));
        }
        self.late = false;
    }

    fn check_row(&self, seq: i64, event: &LiveEvent) {
        let tables = self.world.tables.lock().unwrap();
        let row = tables.events.get(&(self.stream_id, seq));
        let same = row.is_some_and(|row| row.kind == event.kind && row.turn_id == Some(event.turn_id));
        let between = tables.events.range((self.stream_id, (self.last_seq + 1).min(seq))..(self.stream_id, seq));
        // Text taken back twice is taken back once.
        let twice = |kind: EventType| kind == EventType::AssistantReset && event.kind == kind;
        let missed = between.filter(|(_, row)| row.turn_id == self.turn_id && !twice(row.kind)).count();
        drop(tables);
        if !same {
            self.world.violated(format!("a client heard event {seq} ({}), which is no row", event.kind));
        }
        if seq <= self.last_seq || missed > 0 {
            let (turn, kind, last) = (short(event.turn_id), event.kind, self.last_seq);
            self.world.violated(format!("a client of {turn} heard {kind} {seq} after {last}, {missed} left out"));
        }
    }
}

/// Until the stream ends, or the server is gone.
pub async fn listen(mut listener: Listener, mut events: Subscription) {
    let name = listener.turn_id.map(|turn_id| (listener.process.name.clone(), turn_id));
    if let Some(name) = &name {
        listener.world.ledger.lock().unwrap().listening.insert(name.clone());
    }
    while let Some(event) = events.recv().await {
        if listener.process.is_dead() || !listener.hear(&event) {
            break;
        }
    }
    if let Some(name) = &name {
        listener.world.ledger.lock().unwrap().listening.remove(name);
    }
}
