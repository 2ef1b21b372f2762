//! The messages of a conversation as items of the Conversations API, and items as messages. No I/O.
//!
//! A message is one row: its text and each of its calls are an item. The id of an item contains the row's id and its place in the row.
//! A call without an output has a row that waits for it; that row is no item.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};
use werkruf_contract::{Clock, Uuid};
use werkruf_llm::HistoryCall;
use werkruf_llm::history_formats::{HistoryFormat, ResultStatus, Role, StoredMessage, column, items, read};
use werkruf_store::{MessageChange, MessageEdit, MessageRow, NewMessage, Replacement};

use super::responses::request::usable;
use crate::api::error::ApiError;
use crate::api::history;

/// The items of a row, in order.
pub(crate) fn of_row(row: &MessageRow) -> Vec<Value> {
    of_message(row.id, &history::stored(row))
}

fn of_message(row_id: Uuid, message: &StoredMessage) -> Vec<Value> {
    let silent = message.metadata.get("silent").is_some_and(|silent| silent == true);
    if message.status == Some(ResultStatus::Pending) || silent {
        return Vec::new();
    }
    let mut found = items(message);
    for (at, item) in found.iter_mut().enumerate() {
        let prefix = match item["type"].as_str() {
            Some("message") | None => "msg",
            Some("function_call") => "fc",
            Some("function_call_output") => "fco",
            Some("custom_tool_call") => "ctc",
            Some("custom_tool_call_output") => "ctco",
            Some(_) => "item",
        };
        item["id"] = format!("{prefix}_{}_{at}", row_id.simple()).into();
        item["status"] = "completed".into();
        if prefix == "msg" {
            item["type"] = "message".into();
            item["content"] = parts(&item["role"], &item["content"]);
        }
    }
    found
}

/// The content of a message as a list of parts.
fn parts(role: &Value, content: &Value) -> Value {
    match content {
        Value::Array(_) => content.clone(),
        _ if role == "assistant" => json!([{"type": "output_text", "text": content, "annotations": [], "logprobs": []}]),
        _ => json!([{"type": "input_text", "text": content}]),
    }
}

/// The row and the place that an item's id names.
pub(crate) fn place(id: &str) -> Option<(Uuid, usize)> {
    let (prefix_and_row, at) = id.rsplit_once('_')?;
    let (_, row) = prefix_and_row.rsplit_once('_')?;
    Some((Uuid::parse_str(row).ok()?, at.parse().ok()?))
}

/// New items as rows.
#[derive(Debug, Default)]
pub(crate) struct NewRows {
    pub(crate) results: Vec<Replacement>,
    pub(crate) messages: Vec<NewMessage>,
    /// The new items, in order.
    pub(crate) items: Vec<Value>,
    pub(crate) title: String,
}

/// Converts items. `stored` are the messages of the conversation.
pub(crate) fn new_rows(clock: &Clock, given: Vec<Value>, stored: &[MessageRow]) -> Result<NewRows, ApiError> {
    let given: Vec<Value> = given.into_iter().flat_map(usable).filter(|item| item["type"] != "item_reference").collect();
    let messages = read(HistoryFormat::Responses, &given, &mut || format!("call_{}", clock.new_id().simple()))
        .map_err(|fault| ApiError::invalid(format!("The item at {} {}.", fault.path, fault.message)).param("items"))?;
    let mut rows = Writer { clock, rows: NewRows { title: history::title(&messages), ..NewRows::default() }, open: Vec::new() };
    let results: HashMap<&str, &MessageRow> = stored.iter().filter_map(|row| Some((row.tool_call_id.as_deref()?, row))).collect();
    let mut renamed: HashMap<String, String> = HashMap::new();
    for mut message in messages {
        for call in message.calls.iter_mut().filter(|call| results.contains_key(call.id.as_str())) {
            // An id such as call_0 comes again in a conversation.
            let fresh = format!("call_{}", clock.new_id().simple());
            renamed.insert(std::mem::replace(&mut call.id, fresh.clone()), fresh);
        }
        if let Some(fresh) = message.call_id.as_ref().and_then(|id| renamed.get(id)) {
            message.call_id = Some(fresh.clone());
        }
        let waiting = message.call_id.as_deref().and_then(|id| results.get(id));
        match waiting {
            Some(row) if row.status.as_deref() == Some("pending") => rows.fill(row, &message),
            Some(_) => return Err(ApiError::invalid("A call of these items has its output already.").param("items")),
            None => rows.push(&message),
        }
    }
    rows.close();
    Ok(rows.rows)
}

struct Writer<'a> {
    clock: &'a Clock,
    rows: NewRows,
    /// Calls of the last message that have no output yet.
    open: Vec<HistoryCall>,
}

impl Writer<'_> {
    fn push(&mut self, message: &StoredMessage) {
        if message.role == Role::Tool {
            self.open.retain(|call| Some(&call.id) != message.call_id.as_ref());
        } else {
            self.close();
            self.open.clone_from(&message.calls);
        }
        let id = self.clock.new_id();
        self.rows.items.extend(of_message(id, message));
        self.rows.messages.push(history::row(id, message));
    }

    /// A result for a call that is stored already.
    fn fill(&mut self, row: &MessageRow, message: &StoredMessage) {
        let NewMessage { content, metadata, .. } = history::row(row.id, message);
        self.rows.items.extend(of_message(row.id, message));
        let tool_call_id = row.tool_call_id.clone().unwrap_or_default();
        self.rows.results.push(Replacement { tool_call_id, content, status: "success", metadata });
    }

    /// A call without an output gets a row that waits for it.
    fn close(&mut self) {
        for call in self.open.drain(..) {
            let waiting = NewMessage {
                tool_call_id: Some(call.id),
                tool_name: Some(call.name),
                status: Some("pending"),
                ..NewMessage::new(self.clock.new_id(), "tool", "")
            };
            self.rows.messages.push(waiting);
        }
    }
}

/// The changes that remove an item; `None` where there is no such item.
pub(crate) fn removal(rows: &[MessageRow], id: &str) -> Option<Vec<MessageEdit>> {
    let (row_id, at) = place(id)?;
    let row = rows.iter().find(|row| row.id == row_id)?;
    let item = of_row(row).into_iter().nth(at).filter(|item| item["id"] == id)?;
    let edit = |row: &MessageRow, change| MessageEdit { id: row.id, change };
    let message = history::stored(row);
    match message.role {
        Role::User | Role::System => return Some(vec![edit(row, MessageChange::Delete)]),
        Role::Tool => {
            let called: HashSet<String> = rows.iter().flat_map(|row| history::stored(row).calls).map(|call| call.id).collect();
            let waits = row.tool_call_id.as_ref().is_some_and(|id| called.contains(id));
            return Some(vec![edit(row, if waits { MessageChange::Reopen } else { MessageChange::Delete })]);
        }
        Role::Assistant => {}
    }
    let (mut content, mut calls) = (message.content.clone(), message.calls.clone());
    let mut edits = Vec::new();
    match item["call_id"].as_str() {
        Some(wire) => {
            // The row may have renamed the id, so the place among the calls decides.
            let nth = of_row(row)[..at].iter().filter(|item| item.get("call_id").is_some()).count();
            let removed = if nth < calls.len() { Some(calls.remove(nth)) } else { None };
            let removed = removed.map_or_else(|| wire.to_owned(), |call| call.id);
            let results = rows.iter().filter(|other| other.tool_call_id.as_ref() == Some(&removed));
            edits.extend(results.map(|result| edit(result, MessageChange::Delete)));
        }
        None if item["type"] == "message" => content.clear(),
        None => {}
    }
    let change = if content.is_empty() && calls.is_empty() {
        MessageChange::Delete
    } else {
        let tool_calls = (!calls.is_empty()).then(|| column(&calls));
        MessageChange::Replace { content, tool_calls, metadata: kept_metadata(&message.metadata) }
    };
    edits.push(edit(row, change));
    Some(edits)
}

/// What strangers wrote stays marked, and a text keeps what it refers to.
fn kept_metadata(metadata: &Map<String, Value>) -> String {
    let is_kept = |name: &str| matches!(name, "untrusted" | "annotations");
    let kept: Map<String, Value> =
        metadata.iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
    Value::Object(kept).to_string()
}

#[cfg(test)]
#[path = "conversation_items_tests.rs"]
mod tests;
