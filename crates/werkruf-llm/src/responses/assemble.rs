//! Events to one answer.
//!
//! Items are kept by `output_index`. What was finished wins over what was added, and the response at the end over both;
//! an item the end does not mention stays as it was. What a call is asked counts only once the call is finished.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::carried;
use super::decide::standing;
use super::decode::{Ending, Event, Piece, Place, decode};
use super::item::{Item, Part};
use crate::reading::{Standing, Wire};
use crate::refusal::StreamError;
use crate::sse::SseEvent;
use crate::{Answer, Delta, TokenUsage, ToolCall};

/// More items than this are no answer; it also bounds the work of bringing them together.
const MAX_ITEMS: usize = 4096;

/// An answer in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    items: BTreeMap<u32, OpenItem>,
    /// The status at the end.
    pub(crate) finish: Option<String>,
    /// Why, where it was cut off.
    cut: Option<String>,
    usage: Option<TokenUsage>,
    response_id: Option<String>,
    model: Option<String>,
    pub(crate) failure: Option<StreamError>,
    /// Something was lost, so the calls may not be what the model said.
    pub(crate) damaged: bool,
    errors: Vec<String>,
}

/// An item as far as it came.
#[derive(Debug, Default)]
pub(super) struct OpenItem {
    pub(super) item: Item,
    finished: bool,
    /// Readers know of it.
    started: bool,
    /// Readers know how it ended.
    told: bool,
    /// Pieces of what it is asked, and all of it; used where the finished item does not say.
    pieces: String,
    all: Option<String>,
    /// Pieces of a message as shown, by their place in it and whether they refuse.
    pub(super) parts: BTreeMap<(u32, bool), Part>,
}

impl Assembly {
    /// Takes an event; what is to be shown now is added to `out`.
    pub(crate) fn add(&mut self, event: Event, out: &mut Vec<Delta>) {
        match event {
            Event::Begun { response_id, model } => {
                self.response_id = self.response_id.take().or(response_id);
                self.model = self.model.take().or(model);
            }
            Event::Added(place, item) => self.add_item(&place, *item, out),
            Event::Finished(place, item) => {
                let at = self.find(&place).unwrap_or_else(|| self.next());
                if self.is_taken(at, &item) {
                    return self.lose("two items share one place");
                }
                self.finish_item(at, *item, out);
            }
            Event::Said { place, part, refusal, piece } => {
                let Some(open) = self.about(place) else { return };
                if open.item.kind.is_empty() {
                    "message".clone_into(&mut open.item.kind);
                }
                open.say(part, refusal, piece, out);
            }
            Event::Arguments(place, piece) => match (self.about(place), piece) {
                (Some(open), Piece::More(more)) => open.pieces.push_str(&more),
                (Some(open), Piece::All(all)) => open.all = Some(all),
                (None, _) => {}
            },
            Event::Progress(place, status) => {
                if let Some(open) = self.find(&place).and_then(|at| self.items.get_mut(&at))
                    && !open.finished
                {
                    open.item.status = Some(status);
                }
            }
            Event::Ended(ending) => self.end(*ending, out),
            Event::Error(error) => self.fail(error),
            Event::Nothing => {}
            Event::Damaged => self.lose("a string in the stream could not be read"),
        }
    }

    /// Where an event belongs: at its place, else where its id is known, else at the latest item.
    fn find(&self, place: &Place) -> Option<u32> {
        if place.index.is_some() {
            return place.index;
        }
        let by_id = || self.items.iter().find(|(_, open)| open.item.id.is_some() && open.item.id == place.item_id).map(|(at, _)| *at);
        by_id().or_else(|| if place.item_id.is_none() { self.items.keys().next_back().copied() } else { None })
    }

    fn next(&self) -> u32 {
        self.items.keys().next_back().map_or(0, |last| last.saturating_add(1))
    }

    /// The item at this place, new where there was none.
    fn open(&mut self, at: u32) -> Option<&mut OpenItem> {
        if self.items.len() >= MAX_ITEMS && !self.items.contains_key(&at) {
            self.lose("there are too many items");
            return None;
        }
        Some(self.items.entry(at).or_default())
    }

    /// Whether another item is finished there. One would hide the other; a stream that is read again only repeats itself.
    fn is_taken(&self, at: u32, item: &Item) -> bool {
        let same =
            |other: &Item| other.kind == item.kind && (other.id == item.id || (item.call_id.is_some() && other.call_id == item.call_id));
        self.items.get(&at).is_some_and(|open| open.finished && !same(&open.item))
    }

    fn about(&mut self, place: Place) -> Option<&mut OpenItem> {
        let at = self.find(&place).unwrap_or_else(|| self.next());
        let open = self.open(at)?;
        open.item.id = open.item.id.take().or(place.item_id);
        Some(open)
    }

    fn add_item(&mut self, place: &Place, item: Item, out: &mut Vec<Delta>) {
        let at = place.index.unwrap_or_else(|| self.next());
        if self.is_taken(at, &item) {
            return self.lose("two items share one place");
        }
        self.damaged |= item.damaged;
        let Some(open) = self.open(at) else { return };
        if open.finished {
            return;
        }
        open.item = Item { parts: Vec::new(), ..item };
        self.announce(at, out);
    }

    fn finish_item(&mut self, at: u32, mut item: Item, out: &mut Vec<Delta>) {
        self.damaged |= item.damaged;
        let Some(open) = self.open(at) else { return };
        open.say_all(std::mem::take(&mut item.parts), out);
        if open.item.kind == item.kind {
            // What the finished item leaves out still holds; what it says otherwise wins.
            item.id = item.id.or(open.item.id.take());
            item.call_id = item.call_id.or(open.item.call_id.take());
            item.name = item.name.or(open.item.name.take());
        }
        if item.arguments.as_ref().is_none_or(String::is_empty) {
            let told = open.all.take().filter(|all| !all.is_empty()).unwrap_or_else(|| open.pieces.clone());
            item.arguments = Some(told).filter(|told| !told.is_empty()).or(item.arguments);
        }
        open.item = item;
        open.finished = true;
        self.announce(at, out);
    }

    fn announce(&mut self, at: u32, out: &mut Vec<Delta>) {
        if let Some(open) = self.items.get_mut(&at) {
            open.announce(at, self.response_id.as_deref(), out);
        }
    }

    /// The response at its end knows best, also of items no event told about.
    fn end(&mut self, ending: Ending, out: &mut Vec<Delta>) {
        if ending.damaged {
            self.lose("an item at the end could not be read");
        }
        self.response_id = ending.response_id.or(self.response_id.take());
        let mut met = BTreeSet::new();
        for (item, position) in ending.items.into_iter().zip(0_u32..) {
            let at = self.place_of(&item, position, &met);
            met.insert(at);
            self.finish_item(at, item, out);
        }
        self.model = ending.model.or(self.model.take());
        self.usage = ending.usage.or(self.usage);
        if let Some(reason) = ending.reason {
            self.errors.push(format!("incomplete: {reason}"));
            self.cut = Some(reason);
        }
        if ending.status == "failed" || ending.failure.is_some() {
            let unnamed = || StreamError { status: 502, message: "the response failed".to_owned() };
            self.fail(ending.failure.unwrap_or_else(unnamed));
        }
        self.finish = Some(ending.status).filter(|status| !status.is_empty());
    }

    /// Where an item of the end stands: by its id, else at its position, else by its call, else somewhere new.
    fn place_of(&self, item: &Item, position: u32, met: &BTreeSet<u32>) -> u32 {
        let free = |at: &u32| !met.contains(at);
        let find = |same: &dyn Fn(&Item) -> bool| self.items.iter().find(|(at, open)| free(at) && same(&open.item)).map(|(at, _)| *at);
        if let Some(at) = item.id.as_ref().and_then(|id| find(&|other| other.id.as_ref() == Some(id))) {
            return at;
        }
        // Ids may rotate, but what pairs a call with its result does not.
        let same_call = |other: &Item| other.call_id == item.call_id || other.call_id.is_none() || item.call_id.is_none();
        let same = |other: &Item| other.kind.is_empty() || (other.kind == item.kind && same_call(other));
        let fits = self.items.get(&position).is_none_or(|open| same(&open.item));
        if fits && free(&position) {
            return position;
        }
        let by_call = item.call_id.as_ref().filter(|id| !id.is_empty()).and_then(|id| find(&|other| other.call_id.as_ref() == Some(id)));
        by_call.unwrap_or_else(|| self.next().max(met.last().map_or(0, |last| last.saturating_add(1))))
    }

    fn fail(&mut self, error: StreamError) {
        if !self.errors.contains(&error.message) {
            self.errors.push(error.message.clone());
        }
        self.failure.get_or_insert(error);
    }

    fn lose(&mut self, what: &str) {
        self.damaged = true;
        if self.errors.last().is_none_or(|last| last != what) {
            self.errors.push(what.to_owned());
        }
    }

    /// Whether the model asked for calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.items.values().any(|open| open.item.asked_kind().is_some())
    }

    /// Whether it began one and never finished it, or told pieces of one that never came.
    pub(crate) fn has_unfinished_calls(&self) -> bool {
        let half = |open: &OpenItem| open.item.asked_kind().is_some() || (open.item.kind.is_empty() && !open.pieces.is_empty());
        self.items.values().any(|open| !open.finished && half(open))
    }

    fn spoken(&self, refusal: bool) -> String {
        self.items.values().map(|open| open.spoken(refusal)).collect()
    }
}

impl OpenItem {
    /// Adds to a part of a message. What was not shown yet goes out; what was shown and turns out otherwise is put right silently.
    fn say(&mut self, part: u32, refusal: bool, piece: Piece, out: &mut Vec<Delta>) {
        let part = self.parts.entry((part, refusal)).or_insert_with(|| Part { refusal, ..Part::default() });
        let new = match piece {
            Piece::More(more) => {
                part.text.push_str(&more);
                more
            }
            Piece::All(all) => {
                let new = all.strip_prefix(part.text.as_str()).unwrap_or_default().to_owned();
                part.text = all;
                new
            }
        };
        if !new.is_empty() && !refusal {
            out.push(Delta::Text(new));
        }
    }

    /// The whole message. Its parts may stand elsewhere than its pieces did, so what is new is found in the text, not by part.
    fn say_all(&mut self, parts: Vec<Part>, out: &mut Vec<Delta>) {
        if parts.is_empty() {
            return;
        }
        let before = self.spoken(false);
        self.parts = (0..).zip(parts).map(|(at, part)| ((at, part.refusal), part)).collect();
        if let Some(new) = self.spoken(false).strip_prefix(&before).filter(|new| !new.is_empty()) {
            out.push(Delta::Text(new.to_owned()));
        }
    }

    fn spoken(&self, refusal: bool) -> String {
        self.parts.values().filter(|part| part.refusal == refusal).map(|part| part.text.as_str()).collect()
    }

    /// Tells readers once that the provider began something, and once how it ended.
    fn announce(&mut self, at: u32, response_id: Option<&str>, out: &mut Vec<Delta>) {
        if self.item.is_speech() || self.item.asked_kind().is_some() {
            return;
        }
        let shown = self.item.shown(at, response_id);
        if shown.call_kind().is_none() {
            return;
        }
        if !std::mem::replace(&mut self.started, true) {
            out.push(Delta::ItemStarted(Box::new(shown.clone())));
        }
        if self.finished && !std::mem::replace(&mut self.told, true) {
            out.push(Delta::ItemFinished(Box::new(shown)));
        }
    }
}

impl Wire for Assembly {
    fn take(&mut self, payload: &str, event: &SseEvent, out: &mut Vec<Delta>) -> Result<(), serde_json::Error> {
        let said = decode(payload, event.name.as_deref())?;
        self.add(said, out);
        if event.damaged {
            self.lose("an event held bytes that are no text");
        }
        Ok(())
    }

    fn end_mark(&mut self) {}

    fn standing(&self) -> Standing {
        standing(self)
    }

    fn is_settled(&self) -> bool {
        self.finish.is_some()
    }

    fn failure(&self) -> Option<&StreamError> {
        self.failure.as_ref()
    }

    fn remarks(&mut self) -> &mut Vec<String> {
        &mut self.errors
    }

    fn text(&self) -> String {
        self.spoken(false)
    }

    fn into_answer(self, executable: bool) -> Answer {
        let carry = carried::carried(&self.items).map(Value::Object);
        let (mut calls, mut items) = (Vec::new(), Vec::new());
        for (at, open) in &self.items {
            match open.item.asked_kind() {
                Some(kind) => {
                    let arguments = open.item.arguments.clone().unwrap_or_default();
                    // Only where the provider was done does an absence of arguments mean no arguments.
                    let none = arguments.is_empty() && executable && open.item.kind == "function_call";
                    calls.push(ToolCall {
                        kind,
                        item_id: open.item.id.clone(),
                        call_id: open.item.call_id.clone(),
                        output_index: *at,
                        name: open.item.name.clone().unwrap_or_default(),
                        arguments: if none { "{}".to_owned() } else { arguments },
                        status: open.item.status.clone(),
                    });
                }
                None if open.item.is_speech() => {}
                None => items.push(open.item.shown(*at, self.response_id.as_deref())),
            }
        }
        Answer {
            text: self.spoken(false),
            refusal: Some(self.spoken(true)).filter(|refusal| !refusal.is_empty()),
            calls,
            items,
            finish: self.finish,
            cut: self.cut,
            executable,
            usage: self.usage,
            response_id: self.response_id,
            model: self.model,
            carry,
            errors: self.errors,
        }
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
