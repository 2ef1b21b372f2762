//! Assembles chunks into one answer.
//!
//! A fragment belongs to the call with its id, else with its index, else to the latest call; a new id with a used index is a new call.
//! Names are set once and arguments are only appended to: a call is never repaired into something that the model did not send.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use werkruf_contract::CallKind;

use super::decode::{CallFragment, Chunk, decode};
use super::state::state;
use crate::annotations::Annotations;
use crate::reader::{AnswerState, Wire};
use crate::sse::SseEvent;
use crate::stream_error::StreamError;
use crate::{Answer, Delta, TokenUsage, ToolCall};

/// An answer that is being assembled.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub(crate) text: String,
    pub(crate) refusal: String,
    annotations: Annotations,
    reasoning: String,
    calls: Vec<PartialCall>,
    pub(crate) finish: Option<String>,
    /// A finish reason reported that the answer was truncated, even if a later one did not.
    pub(crate) truncated: bool,
    pub(crate) usage: Option<TokenUsage>,
    response_id: Option<String>,
    model: Option<String>,
    pub(crate) failure: Option<StreamError>,
    /// `[DONE]` arrived.
    pub(crate) done: bool,
    /// Bytes were lost, so the calls may differ from what the model sent.
    pub(crate) damaged: bool,
    pub(crate) errors: Vec<String>,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u32>,
    id: Option<String>,
    name: String,
    arguments: String,
    extra: Option<Value>,
}

impl PartialCall {
    fn has_complete_arguments(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    /// Whether a fragment without a new id or index must still belong to a new call: its name differs, or this call is already complete.
    fn is_finished_before(&self, fragment: &CallFragment) -> bool {
        fragment.name.as_ref().is_some_and(|name| {
            !self.name.is_empty() && (*name != self.name || (!fragment.arguments.is_empty() && self.has_complete_arguments()))
        })
    }
}

impl Assembly {
    /// Adds a chunk. Returns its text, if any.
    pub(crate) fn add(&mut self, chunk: Chunk) -> Option<String> {
        self.response_id = self.response_id.take().or(chunk.response_id);
        self.model = self.model.take().or(chunk.model);
        self.usage = chunk.usage.or(self.usage);
        self.refusal.push_str(&chunk.refusal);
        self.reasoning.push_str(&chunk.reasoning);
        chunk.annotations.iter().for_each(|annotation| self.annotations.add(annotation));
        for fragment in chunk.calls {
            self.add_fragment(fragment);
        }
        if let Some(finish) = chunk.finish {
            self.truncated |= matches!(finish.as_str(), "length" | "content_filter" | "max_tokens");
            self.finish = Some(finish);
        }
        if let Some(error) = chunk.error {
            self.errors.push(error.message.clone());
            self.failure.get_or_insert(error);
        }
        if chunk.damaged {
            self.damaged = true;
            self.errors.push("a string in the stream could not be decoded".to_owned());
        }
        if chunk.text.is_empty() {
            return None;
        }
        self.text.push_str(&chunk.text);
        Some(chunk.text)
    }

    /// Whether the model requested calls.
    pub(crate) const fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    fn add_fragment(&mut self, fragment: CallFragment) {
        let position = self.find_call(&fragment).unwrap_or_else(|| {
            self.calls.push(PartialCall { index: fragment.index, ..PartialCall::default() });
            self.calls.len() - 1
        });
        let Some(call) = self.calls.get_mut(position) else { return };
        call.id = call.id.take().or(fragment.id);
        call.index = call.index.or(fragment.index);
        call.extra = call.extra.take().or(fragment.extra);
        if call.name.is_empty() {
            call.name = fragment.name.unwrap_or_default();
        }
        call.arguments.push_str(&fragment.arguments);
    }

    /// The call that a fragment continues; `None` if it starts a new one.
    fn find_call(&self, fragment: &CallFragment) -> Option<usize> {
        let by_index = || match fragment.index {
            // The latest call with the index, because some servers send index 0 for every call.
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
            None => self.calls.len().checked_sub(1),
        };
        let Some(id) = &fragment.id else {
            return by_index().filter(|position| !self.calls[*position].is_finished_before(fragment));
        };
        if let Some(position) = self.calls.iter().rposition(|call| call.id.as_ref() == Some(id)) {
            let call = &self.calls[position];
            // Some servers send one id for two calls. The index distinguishes them once the first call is complete.
            let other_index = fragment.index.is_some() && call.index.is_some() && fragment.index != call.index;
            return if other_index && call.is_finished_before(fragment) { None } else { Some(position) };
        }
        // A late id is added to its call. An id that differs from the call's id starts a new call.
        by_index().filter(|position| self.calls[*position].id.is_none() && fragment.name.is_none())
    }

    /// The data that the server needs again in the next request: signatures of calls, and the reasoning that led to them.
    fn carry(&self) -> Option<Map<String, Value>> {
        if self.calls.is_empty() {
            return None;
        }
        let mut carry = Map::new();
        if self.calls.iter().any(|call| call.extra.is_some()) {
            carry.insert("extra_content".to_owned(), self.calls.iter().map(|call| call.extra.clone().unwrap_or(Value::Null)).collect());
        }
        if !self.reasoning.is_empty() {
            carry.insert("reasoning_content".to_owned(), json!(self.reasoning));
        }
        Some(carry).filter(|carry| !carry.is_empty())
    }
}

impl Wire for Assembly {
    fn add_payload(&mut self, payload: &str, event: &SseEvent, out: &mut Vec<Delta>) -> Result<(), serde_json::Error> {
        let mut chunk = decode(payload, event.name.as_deref() == Some("error"))?;
        chunk.damaged |= event.damaged;
        out.extend(self.add(chunk).map(Delta::Text));
        Ok(())
    }

    fn mark_done(&mut self) {
        self.done = true;
    }

    fn state(&self) -> AnswerState {
        state(self)
    }

    fn is_final(&self) -> bool {
        self.done
    }

    fn failure(&self) -> Option<&StreamError> {
        self.failure.as_ref()
    }

    fn warnings(&mut self) -> &mut Vec<String> {
        &mut self.errors
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    /// Missing arguments mean no arguments only if the provider reported the end of the answer.
    fn into_answer(self, executable: bool) -> Answer {
        let carry = self.carry().map(Value::Object);
        let calls = self.calls.into_iter().zip(0..).map(|(call, output_index)| ToolCall {
            kind: CallKind::Function,
            item_id: None,
            call_id: call.id,
            output_index,
            name: call.name,
            arguments: if call.arguments.is_empty() && executable { "{}".to_owned() } else { call.arguments },
            status: None,
            server_label: None,
        });
        Answer {
            calls: calls.collect(),
            items: Vec::new(),
            annotations: self.annotations.within(&self.text),
            text: self.text,
            refusal: Some(self.refusal).filter(|refusal| !refusal.is_empty()),
            finish: self.finish,
            cut: None,
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
