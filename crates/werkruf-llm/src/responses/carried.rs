//! The data of an answer that the next request must send back: encrypted reasoning, and its order among messages and calls.
//!
//! The API rejects reasoning without the item that followed it, so the order of all items is stored. Messages and calls themselves
//! are in the history; only their positions are stored, and they are used only while they still match the history. A request for
//! permission is stored too, because its answer must follow it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::assemble::OpenItem;
use crate::{HistoryCall, Message};

/// One item to send back, in order.
#[derive(Debug, PartialEq)]
pub(super) enum Slot<'a> {
    /// The item as received.
    Item(&'a Value),
    /// A message of the assistant, with its id and phase.
    Message {
        text: &'a str,
        id: Option<&'a str>,
        phase: Option<&'a str>,
    },
    Call(&'a HistoryCall),
    /// A call that the provider asked for permission to run, and its request as received.
    Request(&'a HistoryCall, &'a Value),
}

impl Slot<'_> {
    pub(super) fn is_reasoning(&self) -> bool {
        matches!(self, Self::Item(item) if item["type"] == "reasoning")
    }
}

/// The data to store; `None` if the history alone is enough.
pub(super) fn from_items(items: &BTreeMap<u32, OpenItem>) -> Option<Map<String, Value>> {
    let (mut slots, mut calls, mut needed) = (Vec::new(), 0, false);
    for open in items.values() {
        let item = &open.item;
        if item.requested_call().is_some() {
            let request = item.raw.as_ref().and_then(returnable);
            needed |= request.is_some();
            slots.push(request.map_or_else(|| json!({"call": calls}), |request| json!({"call": calls, "request": request})));
            calls += 1;
        } else if item.kind == "message" {
            let bytes: usize = open.parts.values().filter(|part| !part.refusal).map(|part| part.text.len()).sum();
            needed |= item.phase.is_some();
            slots.push(json!({"message": {"bytes": bytes, "id": item.id, "phase": item.phase}}));
        } else if item.approval_request_id.is_some() {
            // What ran after an approval is in the history as the result of the call that was approved.
            while slots.last().is_some_and(|slot: &Value| slot["item"]["type"] == "reasoning") {
                slots.pop();
            }
        } else if let Some(value) = item.raw.as_ref().and_then(returnable) {
            needed |= item.is_model_output();
            slots.push(json!({"item": value}));
        }
    }
    needed.then(|| Map::from_iter([("items".to_owned(), Value::Array(slots))]))
}

/// The item in the form that the API accepts as input. It rejects reasoning without encrypted or readable content, and a status on it.
fn returnable(raw: &Value) -> Option<Value> {
    let mut item = raw.as_object()?.clone();
    item.retain(|_, value| !value.is_null());
    if item.get("type").is_some_and(|kind| kind == "reasoning") {
        item.remove("status");
        let has_content = item.get("content").and_then(Value::as_array).is_some_and(|content| !content.is_empty());
        if !item.contains_key("encrypted_content") && !has_content {
            return None;
        }
    }
    Some(Value::Object(item))
}

/// The slots of an assistant message; `None` if the stored data does not match the message any more.
pub(super) fn to_slots<'a>(carried: &'a Map<String, Value>, content: &'a str, calls: &'a [HistoryCall]) -> Option<Vec<Slot<'a>>> {
    let (mut out, mut rest, mut matched) = (Vec::new(), content, 0);
    for slot in carried.get("items")?.as_array()? {
        if let Some(item) = slot.get("item") {
            out.push(Slot::Item(item));
        } else if let Some(message) = slot.get("message") {
            let bytes = usize::try_from(message["bytes"].as_u64()?).ok()?;
            let (text, remaining) = rest.split_at_checked(bytes)?;
            rest = remaining;
            if !text.is_empty() {
                out.push(Slot::Message { text, id: message["id"].as_str(), phase: message["phase"].as_str() });
            }
        } else {
            // Each call must occur once and in order; otherwise the data does not belong to this answer.
            let call = calls.get(matched).filter(|_| slot["call"] == matched)?;
            out.push(slot.get("request").map_or(Slot::Call(call), |request| Slot::Request(call, request)));
            matched += 1;
        }
    }
    // Reasoning at the end has lost the item that it belongs to.
    while out.last().is_some_and(Slot::is_reasoning) {
        out.pop();
    }
    (rest.is_empty() && matched == calls.len()).then_some(out)
}

/// The slots of a message without stored data.
pub(super) fn plain<'a>(content: &'a str, calls: &'a [HistoryCall]) -> Vec<Slot<'a>> {
    let message = (!content.is_empty() || calls.is_empty()).then_some(Slot::Message { text: content, id: None, phase: None });
    message.into_iter().chain(calls.iter().map(Slot::Call)).collect()
}

/// The result of a call among the messages that follow the call.
pub(super) fn result_of<'a>(after: &'a [Message], id: &str) -> Option<(usize, (&'a str, &'a [Value]))> {
    let results = after.iter().map_while(|message| match message {
        Message::Tool { call_id, content, parts, .. } => Some((call_id, (content.as_str(), parts.as_slice()))),
        Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => None,
    });
    results.enumerate().find(|(_, (call_id, _))| *call_id == id).map(|(at, (_, result))| (at, result))
}
