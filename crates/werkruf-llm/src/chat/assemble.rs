//! Chunks to one answer.
//!
//! Calls are found by id, else by index, else the latest one goes on; a new id on a taken index is a new call.
//! Names are set once, arguments only ever appended: a call is never repaired into something the model did not say.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use werkruf_contract::CallKind;

use super::decide::standing;
use super::decode::{CallFragment, Chunk, decode};
use crate::reading::{Standing, Wire};
use crate::refusal::StreamError;
use crate::sse::SseEvent;
use crate::{Answer, Delta, TokenUsage, ToolCall};

/// An answer in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub(crate) text: String,
    pub(crate) refusal: String,
    thoughts: String,
    calls: Vec<OpenCall>,
    pub(crate) finish: Option<String>,
    /// Some finish reason said that the answer was cut, even when a later one said otherwise.
    pub(crate) truncated: bool,
    pub(crate) usage: Option<TokenUsage>,
    response_id: Option<String>,
    model: Option<String>,
    pub(crate) failure: Option<StreamError>,
    /// `[DONE]` came.
    pub(crate) done: bool,
    /// Bytes were lost, so the calls may not be what the model said.
    pub(crate) damaged: bool,
    pub(crate) errors: Vec<String>,
}

#[derive(Debug, Default)]
struct OpenCall {
    index: Option<u32>,
    id: Option<String>,
    name: String,
    arguments: String,
    extra: Option<Value>,
}

impl OpenCall {
    fn is_whole(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    /// Whether a fragment that names no other call must be one all the same: its name differs, or this call already has all it needs.
    fn is_over(&self, fragment: &CallFragment) -> bool {
        fragment
            .name
            .as_ref()
            .is_some_and(|name| !self.name.is_empty() && (*name != self.name || (!fragment.arguments.is_empty() && self.is_whole())))
    }
}

impl Assembly {
    /// Adds a chunk. Gives the text to show, where there was some.
    pub(crate) fn add(&mut self, chunk: Chunk) -> Option<String> {
        self.response_id = self.response_id.take().or(chunk.response_id);
        self.model = self.model.take().or(chunk.model);
        self.usage = chunk.usage.or(self.usage);
        self.refusal.push_str(&chunk.refusal);
        self.thoughts.push_str(&chunk.thoughts);
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
            self.errors.push("a string in the stream could not be read".to_owned());
        }
        if chunk.text.is_empty() {
            return None;
        }
        self.text.push_str(&chunk.text);
        Some(chunk.text)
    }

    /// Whether the model asked for calls.
    pub(crate) const fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    fn add_fragment(&mut self, fragment: CallFragment) {
        let place = self.place_of(&fragment).unwrap_or_else(|| {
            self.calls.push(OpenCall { index: fragment.index, ..OpenCall::default() });
            self.calls.len() - 1
        });
        let Some(call) = self.calls.get_mut(place) else { return };
        call.id = call.id.take().or(fragment.id);
        call.index = call.index.or(fragment.index);
        call.extra = call.extra.take().or(fragment.extra);
        if call.name.is_empty() {
            call.name = fragment.name.unwrap_or_default();
        }
        call.arguments.push_str(&fragment.arguments);
    }

    /// The call a fragment continues; `None` begins a new one.
    fn place_of(&self, fragment: &CallFragment) -> Option<usize> {
        let by_index = || match fragment.index {
            // The latest on an index: servers that number every call 0 continue the last one.
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
            None => self.calls.len().checked_sub(1),
        };
        let Some(id) = &fragment.id else {
            return by_index().filter(|place| !self.calls[*place].is_over(fragment));
        };
        if let Some(place) = self.calls.iter().rposition(|call| call.id.as_ref() == Some(id)) {
            let call = &self.calls[place];
            // One id given to two calls: the index tells them apart, once the first is whole.
            let moved = fragment.index.is_some() && call.index.is_some() && fragment.index != call.index;
            return if moved && call.is_over(fragment) { None } else { Some(place) };
        }
        // An id that comes late joins its call; one that meets another id is a new call.
        by_index().filter(|place| self.calls[*place].id.is_none() && fragment.name.is_none())
    }

    /// What the server wants to see again: signatures beside calls, and thoughts that led to them.
    fn carry(&self) -> Option<Map<String, Value>> {
        if self.calls.is_empty() {
            return None;
        }
        let mut carry = Map::new();
        if self.calls.iter().any(|call| call.extra.is_some()) {
            carry.insert("extra_content".to_owned(), self.calls.iter().map(|call| call.extra.clone().unwrap_or(Value::Null)).collect());
        }
        if !self.thoughts.is_empty() {
            carry.insert("reasoning_content".to_owned(), json!(self.thoughts));
        }
        Some(carry).filter(|carry| !carry.is_empty())
    }
}

impl Wire for Assembly {
    fn take(&mut self, payload: &str, event: &SseEvent, out: &mut Vec<Delta>) -> Result<(), serde_json::Error> {
        let mut chunk = decode(payload, event.name.as_deref() == Some("error"))?;
        chunk.damaged |= event.damaged;
        out.extend(self.add(chunk).map(Delta::Text));
        Ok(())
    }

    fn end_mark(&mut self) {
        self.done = true;
    }

    fn standing(&self) -> Standing {
        standing(self)
    }

    fn is_settled(&self) -> bool {
        self.done
    }

    fn failure(&self) -> Option<&StreamError> {
        self.failure.as_ref()
    }

    fn remarks(&mut self) -> &mut Vec<String> {
        &mut self.errors
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    /// Only where the provider was done does an absence of arguments mean no arguments.
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
        });
        Answer {
            calls: calls.collect(),
            items: Vec::new(),
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
