//! Pairs calls with their results: every id is used once, every result follows its call, and every call has a result.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::{HistoryCall, ResultStatus, Role, StoredMessage};

/// The content of a synthetic result.
const INTERRUPTED: &str =
    r#"{"error":{"type":"FATAL","code":"interrupted","message":"The call was interrupted; its result is not known."}}"#;
/// Marks a synthetic result in the metadata, so that it is not read back as a real one.
pub(super) const SYNTHETIC: &str = "made_up";

/// Assigns the stored ids of calls and results: those of the input, unless missing or already used.
pub(super) struct Pairing<'a> {
    new_id: &'a mut dyn FnMut() -> String,
    used: HashSet<String>,
    answered: HashSet<String>,
    /// Calls of the last message with calls: input id, stored id, name.
    open: Vec<(String, String, String)>,
}

impl<'a> Pairing<'a> {
    pub(super) fn new(new_id: &'a mut dyn FnMut() -> String) -> Self {
        Self { new_id, used: HashSet::new(), answered: HashSet::new(), open: Vec::new() }
    }

    /// Assigns the ids of the next message.
    pub(super) fn assign_ids(&mut self, message: &mut StoredMessage) {
        match message.role {
            Role::Assistant if !message.calls.is_empty() => {
                self.open.clear();
                for call in &mut message.calls {
                    let wire = call.id.clone();
                    if wire.is_empty() || !self.used.insert(wire.clone()) {
                        call.id = (self.new_id)();
                    }
                    self.open.push((wire, call.id.clone(), call.name.clone()));
                }
            }
            Role::Tool => {
                let wire = message.call_id.take().unwrap_or_default();
                let call = self.open.iter().position(|(open, ..)| *open == wire).map(|at| self.open.remove(at));
                let (id, name) = match call {
                    Some((_, id, name)) => (id, Some(name)),
                    // A result without a call, or a second result: it is kept with a new id.
                    None if wire.is_empty() || self.answered.contains(&wire) => ((self.new_id)(), None),
                    None => (wire, None),
                };
                self.answered.insert(id.clone());
                message.call_id = Some(id);
                message.tool_name = message.tool_name.take().or(name);
            }
            Role::Assistant | Role::User | Role::System => {}
        }
    }
}

/// The messages, with a synthetic result for every call that has no result before the next message.
pub(super) fn with_missing_results(messages: &[StoredMessage]) -> Vec<Cow<'_, StoredMessage>> {
    let mut out = Vec::with_capacity(messages.len());
    let mut open: Vec<&HistoryCall> = Vec::new();
    for message in messages {
        if message.role == Role::Tool {
            open.retain(|call| Some(&call.id) != message.call_id.as_ref());
        } else {
            out.extend(open.drain(..).map(|call| Cow::Owned(synthetic_result(call))));
            open.extend(&message.calls);
        }
        out.push(Cow::Borrowed(message));
    }
    out
}

fn synthetic_result(call: &HistoryCall) -> StoredMessage {
    let mut result = StoredMessage::text(Role::Tool, INTERRUPTED);
    result.call_id = Some(call.id.clone());
    result.tool_name = Some(call.name.clone());
    result.status = Some(ResultStatus::Error);
    result.metadata.insert(SYNTHETIC.to_owned(), Value::Bool(true));
    result
}
