//! Calls and their results: every id used once, every result behind its call, no call left without one.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::{HistoryCall, ResultStatus, Role, StoredMessage};

/// What stands where a result is missing.
const INTERRUPTED: &str =
    r#"{"error":{"type":"FATAL","code":"interrupted","message":"The call was interrupted; its result is not known."}}"#;
/// Marks a result that no tool gave, so that it is not taken for one when it comes back.
pub(super) const MADE_UP: &str = "made_up";

/// Gives calls and results the ids they have in our store: those of the wire, unless missing or used before.
pub(super) struct Pairing<'a> {
    fresh: &'a mut dyn FnMut() -> String,
    used: HashSet<String>,
    answered: HashSet<String>,
    /// Calls of the last message that asked: id on the wire, id here, name.
    open: Vec<(String, String, String)>,
}

impl<'a> Pairing<'a> {
    pub(super) fn new(fresh: &'a mut dyn FnMut() -> String) -> Self {
        Self { fresh, used: HashSet::new(), answered: HashSet::new(), open: Vec::new() }
    }

    /// Settles the ids of the next message.
    pub(super) fn settle(&mut self, message: &mut StoredMessage) {
        match message.role {
            Role::Assistant if !message.calls.is_empty() => {
                self.open.clear();
                for call in &mut message.calls {
                    let wire = call.id.clone();
                    if wire.is_empty() || !self.used.insert(wire.clone()) {
                        call.id = (self.fresh)();
                    }
                    self.open.push((wire, call.id.clone(), call.name.clone()));
                }
            }
            Role::Tool => {
                let wire = message.call_id.take().unwrap_or_default();
                let asked = self.open.iter().position(|(open, ..)| *open == wire).map(|at| self.open.remove(at));
                let (id, name) = match asked {
                    Some((_, id, name)) => (id, Some(name)),
                    // A result nobody asked for, or a second one: it keeps its words, under an id of its own.
                    None if wire.is_empty() || self.answered.contains(&wire) => ((self.fresh)(), None),
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

/// The messages with a result made up for every call that is followed by something else before it was answered.
pub(super) fn answered(messages: &[StoredMessage]) -> Vec<Cow<'_, StoredMessage>> {
    let mut out = Vec::with_capacity(messages.len());
    let mut open: Vec<&HistoryCall> = Vec::new();
    for message in messages {
        if message.role == Role::Tool {
            open.retain(|call| Some(&call.id) != message.call_id.as_ref());
        } else {
            out.extend(open.drain(..).map(|call| Cow::Owned(made_up(call))));
            open.extend(&message.calls);
        }
        out.push(Cow::Borrowed(message));
    }
    out
}

fn made_up(call: &HistoryCall) -> StoredMessage {
    let mut result = StoredMessage::text(Role::Tool, INTERRUPTED);
    result.call_id = Some(call.id.clone());
    result.tool_name = Some(call.name.clone());
    result.status = Some(ResultStatus::Error);
    result.metadata.insert(MADE_UP.to_owned(), Value::Bool(true));
    result
}
