//! Assembles events into one answer.
//!
//! Items are stored by `output_index`. A finished item replaces an added one, and the final response replaces both; an item
//! that the final response does not contain stays unchanged. The arguments of a call count only once the call is finished.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::carried;
use super::decode::{Event, FinalResponse, Fragment, ItemRef, decode};
use super::item::{Item, Part};
use super::state::state;
use crate::annotations::{Annotations, characters};
use crate::reader::{AnswerState, Wire};
use crate::sse::SseEvent;
use crate::stream_error::StreamError;
use crate::{Answer, Delta, TokenUsage};

/// A response with more items is not valid; the limit also bounds the work of matching them.
const MAX_ITEMS: usize = 4096;

/// An answer that is being assembled.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    items: BTreeMap<u32, OpenItem>,
    /// The status of the final response.
    pub(crate) finish: Option<String>,
    /// The reason, if the answer was truncated.
    cut: Option<String>,
    usage: Option<TokenUsage>,
    response_id: Option<String>,
    model: Option<String>,
    pub(crate) failure: Option<StreamError>,
    /// Something was lost, so the calls may differ from what the model sent.
    pub(crate) damaged: bool,
    errors: Vec<String>,
}

/// An item as far as it was received.
#[derive(Debug, Default)]
pub(super) struct OpenItem {
    pub(super) item: Item,
    finished: bool,
    /// `Delta::ItemStarted` was emitted.
    start_sent: bool,
    /// `Delta::ItemFinished` was emitted.
    finish_sent: bool,
    /// The argument deltas and the full arguments; used if the finished item does not contain its arguments.
    argument_deltas: String,
    full_arguments: Option<String>,
    /// The parts of a message, by content index and whether they are a refusal.
    pub(super) parts: BTreeMap<(u32, bool), Part>,
}

impl Assembly {
    /// Adds an event and appends the resulting deltas to `out`.
    pub(crate) fn add(&mut self, event: Event, out: &mut Vec<Delta>) {
        match event {
            Event::Created { response_id, model } => {
                self.response_id = self.response_id.take().or(response_id);
                self.model = self.model.take().or(model);
            }
            Event::Added(target, item) => self.add_item(&target, *item, out),
            Event::Finished(target, item) => {
                let index = self.find(&target).unwrap_or_else(|| self.next());
                if self.is_taken(index, &item) {
                    return self.mark_damaged("two items have the same index");
                }
                self.finish_item(index, *item, out);
            }
            Event::Text { target, part, refusal, piece } => {
                let Some(open) = self.item_for(target) else { return };
                if open.item.kind.is_empty() {
                    "message".clone_into(&mut open.item.kind);
                }
                open.add_text(part, refusal, piece, out);
            }
            Event::Annotation { target, part, annotation } => {
                let Some(open) = self.item_for(target) else { return };
                open.parts.entry((part, false)).or_default().annotations.add(&annotation);
            }
            Event::Arguments(target, piece) => match (self.item_for(target), piece) {
                (Some(open), Fragment::Delta(delta)) => open.argument_deltas.push_str(&delta),
                (Some(open), Fragment::Full(full)) => open.full_arguments = Some(full),
                (None, _) => {}
            },
            Event::Progress(target, status) => {
                if let Some(open) = self.find(&target).and_then(|index| self.items.get_mut(&index))
                    && !open.finished
                {
                    open.item.status = Some(status);
                }
            }
            Event::Ended(response) => self.end_response(*response, out),
            Event::Error(error) => self.fail(error),
            Event::Ignored => {}
            Event::Damaged => self.mark_damaged("a string in the stream could not be decoded"),
        }
    }

    /// The index of an event's item: as sent, else by id, else the latest item.
    fn find(&self, target: &ItemRef) -> Option<u32> {
        if target.index.is_some() {
            return target.index;
        }
        let by_id =
            || self.items.iter().find(|(_, open)| open.item.id.is_some() && open.item.id == target.item_id).map(|(index, _)| *index);
        by_id().or_else(|| if target.item_id.is_none() { self.items.keys().next_back().copied() } else { None })
    }

    fn next(&self) -> u32 {
        self.items.keys().next_back().map_or(0, |last| last.saturating_add(1))
    }

    /// The item at this index; created if there is none.
    fn open(&mut self, index: u32) -> Option<&mut OpenItem> {
        if self.items.len() >= MAX_ITEMS && !self.items.contains_key(&index) {
            self.mark_damaged("there are too many items");
            return None;
        }
        Some(self.items.entry(index).or_default())
    }

    /// Whether a different finished item has this index, which would hide one of them. A repeated stream sends the same item again.
    fn is_taken(&self, index: u32, item: &Item) -> bool {
        let same =
            |other: &Item| other.kind == item.kind && (other.id == item.id || (item.call_id.is_some() && other.call_id == item.call_id));
        self.items.get(&index).is_some_and(|open| open.finished && !same(&open.item))
    }

    fn item_for(&mut self, target: ItemRef) -> Option<&mut OpenItem> {
        let index = self.find(&target).unwrap_or_else(|| self.next());
        let open = self.open(index)?;
        open.item.id = open.item.id.take().or(target.item_id);
        Some(open)
    }

    fn add_item(&mut self, target: &ItemRef, item: Item, out: &mut Vec<Delta>) {
        let index = target.index.unwrap_or_else(|| self.next());
        if self.is_taken(index, &item) {
            return self.mark_damaged("two items have the same index");
        }
        self.damaged |= item.damaged;
        let Some(open) = self.open(index) else { return };
        if open.finished {
            return;
        }
        open.item = Item { parts: Vec::new(), ..item };
        self.emit_item(index, out);
    }

    fn finish_item(&mut self, index: u32, mut item: Item, out: &mut Vec<Delta>) {
        self.damaged |= item.damaged;
        let Some(open) = self.open(index) else { return };
        open.replace_text(std::mem::take(&mut item.parts), out);
        if open.item.kind == item.kind {
            // Fields that the finished item lacks are kept; fields that it has replace the earlier ones.
            item.id = item.id.or(open.item.id.take());
            item.call_id = item.call_id.or(open.item.call_id.take());
            item.name = item.name.or(open.item.name.take());
            item.approval_request_id = item.approval_request_id.or(open.item.approval_request_id.take());
            item.server_label = item.server_label.or(open.item.server_label.take());
        }
        if item.arguments.as_ref().is_none_or(String::is_empty) {
            let arguments = open.full_arguments.take().filter(|full| !full.is_empty()).unwrap_or_else(|| open.argument_deltas.clone());
            item.arguments = Some(arguments).filter(|arguments| !arguments.is_empty()).or(item.arguments);
        }
        open.item = item;
        open.finished = true;
        self.emit_item(index, out);
    }

    fn emit_item(&mut self, index: u32, out: &mut Vec<Delta>) {
        if let Some(open) = self.items.get_mut(&index) {
            open.emit_item(index, self.response_id.as_deref(), out);
        }
    }

    /// Applies the final response, which overrides earlier events and may contain items without events.
    fn end_response(&mut self, response: FinalResponse, out: &mut Vec<Delta>) {
        if response.damaged {
            self.mark_damaged("an item of the final response could not be decoded");
        }
        self.response_id = response.response_id.or(self.response_id.take());
        let mut matched = BTreeSet::new();
        for (item, position) in response.items.into_iter().zip(0_u32..) {
            let index = self.index_of(&item, position, &matched);
            matched.insert(index);
            self.finish_item(index, item, out);
        }
        self.model = response.model.or(self.model.take());
        self.usage = response.usage.or(self.usage);
        if let Some(reason) = response.reason {
            self.errors.push(format!("incomplete: {reason}"));
            self.cut = Some(reason);
        }
        if response.status == "failed" || response.failure.is_some() {
            let unnamed = || StreamError { status: 502, message: "the response failed".to_owned() };
            self.fail(response.failure.unwrap_or_else(unnamed));
        }
        self.finish = Some(response.status).filter(|status| !status.is_empty());
    }

    /// The index of an item of the final response: by id, else its position, else by call id, else a new one.
    fn index_of(&self, item: &Item, position: u32, matched: &BTreeSet<u32>) -> u32 {
        let free = |index: &u32| !matched.contains(index);
        let find =
            |same: &dyn Fn(&Item) -> bool| self.items.iter().find(|(index, open)| free(index) && same(&open.item)).map(|(index, _)| *index);
        if let Some(index) = item.id.as_ref().and_then(|id| find(&|other| other.id.as_ref() == Some(id))) {
            return index;
        }
        // Some servers change the ids of items, but not the call id that pairs a call with its result.
        let same_call = |other: &Item| other.call_id == item.call_id || other.call_id.is_none() || item.call_id.is_none();
        let same = |other: &Item| other.kind.is_empty() || (other.kind == item.kind && same_call(other));
        let fits = self.items.get(&position).is_none_or(|open| same(&open.item));
        if fits && free(&position) {
            return position;
        }
        let by_call = item.call_id.as_ref().filter(|id| !id.is_empty()).and_then(|id| find(&|other| other.call_id.as_ref() == Some(id)));
        by_call.unwrap_or_else(|| self.next().max(matched.last().map_or(0, |last| last.saturating_add(1))))
    }

    fn fail(&mut self, error: StreamError) {
        if !self.errors.contains(&error.message) {
            self.errors.push(error.message.clone());
        }
        self.failure.get_or_insert(error);
    }

    fn mark_damaged(&mut self, what: &str) {
        self.damaged = true;
        if self.errors.last().is_none_or(|last| last != what) {
            self.errors.push(what.to_owned());
        }
    }

    /// Whether the model requested calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.items.values().any(|open| open.item.requested_call().is_some())
    }

    /// Whether a call was started but not finished, or argument deltas arrived for an item that never did.
    pub(crate) fn has_unfinished_calls(&self) -> bool {
        let half =
            |open: &OpenItem| open.item.requested_call().is_some() || (open.item.kind.is_empty() && !open.argument_deltas.is_empty());
        self.items.values().any(|open| !open.finished && half(open))
    }

    /// The text, and what it refers to.
    fn annotated_text(&self) -> (String, Annotations) {
        let (mut text, mut annotations) = (String::new(), Annotations::default());
        for part in self.items.values().flat_map(|open| open.parts.values()).filter(|part| !part.refusal) {
            if !part.annotations.is_empty() {
                annotations.append(&part.annotations, characters(&text));
            }
            text.push_str(&part.text);
        }
        (text, annotations)
    }

    fn text_or_refusal(&self, refusal: bool) -> String {
        self.items.values().map(|open| open.text_or_refusal(refusal)).collect()
    }
}

impl OpenItem {
    /// Adds text to a part of a message and emits what is new. A full text that contradicts the emitted text replaces it without a delta.
    fn add_text(&mut self, part: u32, refusal: bool, piece: Fragment, out: &mut Vec<Delta>) {
        let part = self.parts.entry((part, refusal)).or_insert_with(|| Part { refusal, ..Part::default() });
        let new = match piece {
            Fragment::Delta(delta) => {
                part.text.push_str(&delta);
                delta
            }
            Fragment::Full(full) => {
                let new = full.strip_prefix(part.text.as_str()).unwrap_or_default().to_owned();
                part.text = full;
                new
            }
        };
        if !new.is_empty() && !refusal {
            out.push(Delta::Text(new));
        }
    }

    /// Replaces the parts of the message. They may have other indexes than the deltas had, so new text is found by comparing the whole text.
    fn replace_text(&mut self, parts: Vec<Part>, out: &mut Vec<Delta>) {
        if parts.is_empty() {
            return;
        }
        let before = self.text_or_refusal(false);
        let mut earlier = std::mem::take(&mut self.parts);
        self.parts = (0..).zip(parts).map(|(index, part)| ((index, part.refusal), part)).collect();
        for (place, part) in self.parts.iter_mut().filter(|(_, part)| part.annotations.is_empty()) {
            part.annotations = earlier.remove(place).map(|part| part.annotations).unwrap_or_default();
        }
        if let Some(new) = self.text_or_refusal(false).strip_prefix(&before).filter(|new| !new.is_empty()) {
            out.push(Delta::Text(new.to_owned()));
        }
    }

    fn text_or_refusal(&self, refusal: bool) -> String {
        self.parts.values().filter(|part| part.refusal == refusal).map(|part| part.text.as_str()).collect()
    }

    /// Emits once that the provider started an item, and once that the item ended.
    fn emit_item(&mut self, index: u32, response_id: Option<&str>, out: &mut Vec<Delta>) {
        if self.item.is_model_output() || self.item.requested_call().is_some() {
            return;
        }
        let item = self.item.to_provider_item(index, response_id);
        if item.call_kind().is_none() {
            return;
        }
        if !std::mem::replace(&mut self.start_sent, true) {
            out.push(Delta::ItemStarted(Box::new(item.clone())));
        }
        if self.finished && !std::mem::replace(&mut self.finish_sent, true) {
            out.push(Delta::ItemFinished(Box::new(item)));
        }
    }
}

impl Wire for Assembly {
    fn add_payload(&mut self, payload: &str, event: &SseEvent, out: &mut Vec<Delta>) -> Result<(), serde_json::Error> {
        self.add(decode(payload, event.name.as_deref())?, out);
        if event.damaged {
            self.mark_damaged("an event contained bytes that are not text");
        }
        Ok(())
    }

    fn mark_done(&mut self) {}

    fn state(&self) -> AnswerState {
        state(self)
    }

    fn is_final(&self) -> bool {
        self.finish.is_some()
    }

    fn failure(&self) -> Option<&StreamError> {
        self.failure.as_ref()
    }

    fn warnings(&mut self) -> &mut Vec<String> {
        &mut self.errors
    }

    fn text(&self) -> String {
        self.text_or_refusal(false)
    }

    fn into_answer(self, executable: bool) -> Answer {
        let carry = carried::from_items(&self.items).map(Value::Object);
        let (mut calls, mut items) = (Vec::new(), Vec::new());
        for (index, open) in &self.items {
            match open.item.requested_call() {
                Some(kind) => calls.push(open.item.to_tool_call(kind, *index, executable)),
                None if open.item.is_model_output() => {}
                None => items.push(open.item.to_provider_item(*index, self.response_id.as_deref())),
            }
        }
        let (text, annotations) = self.annotated_text();
        Answer {
            annotations: annotations.within(&text),
            text,
            refusal: Some(self.text_or_refusal(true)).filter(|refusal| !refusal.is_empty()),
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
