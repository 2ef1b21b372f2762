//! How far the readers of a stream were told of it, where several processes write to it.
//!
//! Invariants: numbered events are handed out one after another, none left out; one that comes too early waits in its row; while
//! readers are behind no text is handed out either, and when they have caught up they get all of it at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use werkruf_contract::{AssistantSnapshot, EventType, Uuid};
use werkruf_store::{PartialText, StreamKey};

use crate::ground::json;
use crate::hub::{Hub, LiveEvent, PartialAnswer};

/// A stream and its readers.
pub(crate) struct Course {
    tenant_id: Uuid,
    /// The last number that was handed out.
    told: i64,
    /// The last number that was heard of here.
    heard: i64,
    behind: bool,
    /// The text that was shown last, as the store marks it.
    partial: Option<String>,
    /// That text: it may end in the middle, and the row that ends the turn comes next.
    shown: Option<PartialAnswer>,
}

/// When an event is handed out.
pub(crate) enum Telling {
    Now,
    /// From its row, when those before it were.
    Later,
    /// It was, or it is no row and would come out of order.
    Never,
}

impl Course {
    pub(crate) const fn new(tenant_id: Uuid, after: i64) -> Self {
        Self { tenant_id, told: after, heard: after, behind: false, partial: None, shown: None }
    }

    pub(crate) const fn is_behind(&self) -> bool {
        self.behind
    }

    pub(crate) const fn fall_behind(&mut self) {
        self.behind = true;
    }

    /// Somebody came who has less than the others; true where that is so.
    pub(crate) const fn go_back(&mut self, after: i64) -> bool {
        let less = after < self.told;
        if less {
            (self.told, self.behind) = (after, true);
        }
        less
    }

    /// A text that was shown, perhaps not to its end, before the row that settles it is told.
    pub(crate) fn leaves_off(&mut self, shown: Option<PartialAnswer>) {
        self.shown = shown.or_else(|| self.shown.take());
    }

    /// An event of this process.
    pub(crate) fn comes(&mut self, seq: Option<i64>) -> Telling {
        let Some(seq) = seq else { return if self.behind { Telling::Never } else { Telling::Now } };
        if seq <= self.told {
            return Telling::Never;
        }
        self.heard = self.heard.max(seq);
        if self.behind || seq > self.told + 1 {
            self.behind = true;
            return Telling::Later;
        }
        self.told = seq;
        Telling::Now
    }
}

/// What somebody here wants to hear of a stream that may be written elsewhere.
pub(crate) struct Pace {
    pub(crate) stream: StreamKey,
    pub(crate) told: i64,
    pub(crate) behind: bool,
    pub(crate) partial: Option<String>,
    /// Its text is being written here.
    pub(crate) writing: bool,
    /// Turns that somebody wants to hear the end of, and that do not run here.
    pub(crate) turns: BTreeSet<Uuid>,
}

/// What was found of a stream.
pub(crate) struct Found {
    /// The last row that was read.
    pub(crate) up_to: i64,
    /// Whether any row was: readers may have taken the text they had for settled by it.
    pub(crate) moved: bool,
    /// The text under way, and its mark; only where no row that was read makes it void.
    pub(crate) partial: Option<(String, Option<PartialText>)>,
    /// Turns that wait for a person's word: their readers have heard what there is for now.
    pub(crate) parted: Vec<Uuid>,
}

/// Whether a row is behind this text: one of an earlier step or turn, told again for somebody who joined, says nothing of it.
fn settles(shown: &PartialAnswer, row: &LiveEvent) -> bool {
    let step = || serde_json::from_str::<serde_json::Value>(&row.data).ok().and_then(|said| said["step"].as_u64());
    row.kind.settles_text() && row.turn_id == shown.turn_id && (row.kind.ends_turn() || step() >= Some(u64::from(shown.step)))
}

/// The whole text of a turn that was shown in part, as its end says it: whoever heard the part has then heard all of it.
fn whole(shown: &PartialAnswer, end: &LiveEvent) -> Option<LiveEvent> {
    if end.kind != EventType::Final || shown.turn_id != end.turn_id {
        return None;
    }
    let said: serde_json::Value = serde_json::from_str(&end.data).ok()?;
    let content = said["message"]["content"].as_str().filter(|content| *content != shown.content)?.to_owned();
    let data = Arc::from(json(&AssistantSnapshot { content, step: shown.step, turn_id: shown.turn_id }));
    Some(LiveEvent { seq: None, kind: EventType::AssistantSnapshot, turn_id: shown.turn_id, data })
}

impl Hub {
    /// The streams to look after. Those of a turn that runs here are heard without looking, except by who follows the conversation.
    pub(crate) fn to_follow(&self, here: &BTreeSet<Uuid>) -> Vec<Pace> {
        let mut streams = self.lock();
        let mut paces = Vec::new();
        for (stream_id, audience) in &mut streams.readers {
            audience.readers.retain(|reader| !reader.sender.is_closed());
            let Some(course) = &audience.course else { continue };
            let turns = audience.readers.iter().filter_map(|reader| reader.watch.turn_id).filter(|turn| !here.contains(turn));
            let turns: BTreeSet<Uuid> = turns.collect();
            let whole = audience.readers.iter().any(|reader| reader.watch.turn_id.is_none());
            if course.behind || whole || !turns.is_empty() {
                let stream = StreamKey { tenant_id: course.tenant_id, stream_id: *stream_id };
                let (told, behind, partial) = (course.told, course.behind, course.partial.clone());
                paces.push(Pace { stream, told, behind, partial, writing: false, turns });
            }
        }
        for pace in &mut paces {
            pace.writing = streams.writing.contains_key(&pace.stream.stream_id);
        }
        streams.readers.retain(|_, audience| !audience.readers.is_empty());
        paces
    }

    /// The next row of a stream; those that are known are left out.
    pub(crate) fn tell_row(&self, stream_id: Uuid, event: &LiveEvent) {
        let mut streams = self.lock();
        let own = streams.writing.get(&stream_id).map(|writing| &writing.shown).filter(|shown| shown.turn_id == event.turn_id);
        let own = own.map(|shown| PartialAnswer { turn_id: shown.turn_id, step: shown.step, content: String::new() });
        let Some(course) = streams.readers.get_mut(&stream_id).and_then(|audience| audience.course.as_mut()) else { return };
        if event.seq == Some(course.told + 1) {
            course.told += 1;
            let left_off = course.shown.take_if(|shown| settles(shown, event));
            // The row may be read before the turn that wrote it here tells of it: what came while readers were behind was not told.
            let shown = own.filter(|_| course.behind && event.kind.settles_text()).or(left_off);
            if let Some(rest) = shown.and_then(|shown| whole(&shown, event)) {
                streams.hand_out(stream_id, &rest);
            }
            streams.hand_out(stream_id, event);
        }
    }

    /// Everything up to here was told.
    pub(crate) fn caught_up(&self, stream_id: Uuid, found: Found) {
        let mut streams = self.lock();
        let own = streams.writing.get(&stream_id).map(|writing| writing.shown.clone());
        let Some(audience) = streams.readers.get_mut(&stream_id) else { return };
        let Some(course) = audience.course.as_mut().filter(|course| course.told >= found.up_to.max(course.heard)) else { return };
        let was_behind = std::mem::replace(&mut course.behind, false);
        let shown = match (own, found.partial) {
            (Some(own), _) => Some(own).filter(|_| was_behind || found.moved),
            (None, Some((mark, text))) => {
                course.partial = Some(mark);
                text.map(|text| PartialAnswer { turn_id: text.turn_id, step: text.step, content: text.content })
            }
            (None, None) => None,
        };
        if shown.is_some() {
            course.shown.clone_from(&shown);
        }
        audience.readers.retain(|reader| reader.watch.turn_id.is_none_or(|turn_id| !found.parted.contains(&turn_id)));
        if let Some(PartialAnswer { turn_id, step, content }) = shown {
            let data = Arc::from(json(&AssistantSnapshot { content, step, turn_id }));
            streams.hand_out(stream_id, &LiveEvent { seq: None, kind: EventType::AssistantSnapshot, turn_id, data });
        }
    }

    /// Rows up to this one are gone. Whoever follows the conversation comes back and is told where the log begins; those of a turn that
    /// runs are kept, so who only hears one misses none.
    pub(crate) fn skip(&self, stream_id: Uuid, up_to: i64) {
        let mut streams = self.lock();
        let Some(audience) = streams.readers.get_mut(&stream_id) else { return };
        audience.readers.retain(|reader| reader.watch.turn_id.is_some() || reader.watch.after >= up_to);
        if let Some(course) = audience.course.as_mut() {
            course.told = course.told.max(up_to);
        }
    }
}
