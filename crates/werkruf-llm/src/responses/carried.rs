//! What an answer leaves for the next request: sealed thoughts, and where they stood among its messages and calls.
//!
//! A thought is refused without the item that followed it, so the order of all items is kept. Messages and calls themselves
//! are in the history; only their places are noted, and they count only while the history still has as much as was said.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::assemble::OpenItem;
use crate::{HistoryCall, Message};

/// One item to be given back, in order.
#[derive(Debug, PartialEq)]
pub(super) enum Slot<'a> {
    /// As it came.
    Item(&'a Value),
    /// A message of the assistant, with its id and phase.
    Message {
        text: &'a str,
        id: Option<&'a str>,
        phase: Option<&'a str>,
    },
    Call(&'a HistoryCall),
}

/// What is worth keeping; `None` where the history alone says everything.
pub(super) fn carried(items: &BTreeMap<u32, OpenItem>) -> Option<Map<String, Value>> {
    let (mut slots, mut calls, mut worth) = (Vec::new(), 0, false);
    for open in items.values() {
        let item = &open.item;
        if item.asked_kind().is_some() {
            slots.push(json!({"call": calls}));
            calls += 1;
        } else if item.kind == "message" {
            let bytes: usize = open.parts.values().filter(|part| !part.refusal).map(|part| part.text.len()).sum();
            worth |= item.phase.is_some();
            slots.push(json!({"message": {"bytes": bytes, "id": item.id, "phase": item.phase}}));
        } else if let Some(given) = item.whole.as_ref().and_then(given_back) {
            worth |= item.is_speech();
            slots.push(json!({"item": given}));
        }
    }
    worth.then(|| Map::from_iter([("items".to_owned(), Value::Array(slots))]))
}

/// The item as the API takes it back. A thought without a seal or words means nothing to it; a status it does not know.
fn given_back(whole: &Value) -> Option<Value> {
    let mut item = whole.as_object()?.clone();
    item.retain(|_, value| !value.is_null());
    if item.get("type").is_some_and(|kind| kind == "reasoning") {
        item.remove("status");
        let has_words = item.get("content").and_then(Value::as_array).is_some_and(|content| !content.is_empty());
        if !item.contains_key("encrypted_content") && !has_words {
            return None;
        }
    }
    Some(Value::Object(item))
}

/// The slots of an assistant message, where what was kept still fits it.
pub(super) fn slots<'a>(kept: &'a Map<String, Value>, content: &'a str, calls: &'a [HistoryCall]) -> Option<Vec<Slot<'a>>> {
    let (mut out, mut rest, mut met) = (Vec::new(), content, 0);
    for slot in kept.get("items")?.as_array()? {
        if let Some(item) = slot.get("item") {
            out.push(Slot::Item(item));
        } else if let Some(message) = slot.get("message") {
            let bytes = usize::try_from(message["bytes"].as_u64()?).ok()?;
            let (text, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            if !text.is_empty() {
                out.push(Slot::Message { text, id: message["id"].as_str(), phase: message["phase"].as_str() });
            }
        } else {
            // Each call once, in order: anything else is not what this answer left.
            let call = calls.get(met).filter(|_| slot["call"] == met)?;
            out.push(Slot::Call(call));
            met += 1;
        }
    }
    // A thought at the end has lost the item it belongs to.
    while out.last().is_some_and(|slot| matches!(slot, Slot::Item(item) if item["type"] == "reasoning")) {
        out.pop();
    }
    (rest.is_empty() && met == calls.len()).then_some(out)
}

/// The slots of a message nobody kept anything of.
pub(super) fn plain<'a>(content: &'a str, calls: &'a [HistoryCall]) -> Vec<Slot<'a>> {
    let message = (!content.is_empty() || calls.is_empty()).then_some(Slot::Message { text: content, id: None, phase: None });
    message.into_iter().chain(calls.iter().map(Slot::Call)).collect()
}

/// The result of a call among the messages that follow its own.
pub(super) fn result_of<'a>(after: &'a [Message], id: &str) -> Option<(usize, &'a str)> {
    let results = after.iter().map_while(|message| match message {
        Message::Tool { call_id, content, .. } => Some((call_id, content)),
        Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => None,
    });
    results.enumerate().find(|(_, (call_id, _))| *call_id == id).map(|(at, (_, content))| (at, content.as_str()))
}
