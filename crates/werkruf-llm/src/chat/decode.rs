//! Decodes one payload of a stream into one chunk, tolerating deviations of real servers.
//!
//! Every field whose type varies between servers is read as raw JSON first, so that an unexpected value in one field does not lose the others.
//! Nothing is guessed here: missing values stay missing, and `assemble` interprets them.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::TokenUsage;
use crate::raw::{Raw, is_blank, list, name, number, object, raw_struct};
use crate::stream_error::StreamError;
use crate::usage::usage;

/// The content of one payload.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Chunk {
    pub(crate) response_id: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) text: String,
    pub(crate) refusal: String,
    /// As received.
    pub(crate) annotations: Vec<Value>,
    /// The model's reasoning; sent back to the server, never shown to the user.
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<CallFragment>,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) error: Option<StreamError>,
    /// A string could not be decoded; its text is lost.
    pub(crate) damaged: bool,
}

/// A fragment of a call, as sent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CallFragment {
    pub(crate) index: Option<u32>,
    /// Never empty.
    pub(crate) id: Option<String>,
    /// Never empty.
    pub(crate) name: Option<String>,
    pub(crate) arguments: String,
    /// Data that the server needs again with the call (Gemini's `thought_signature`).
    pub(crate) extra: Option<Value>,
}

raw_struct! {
    WireChunk { id, model, choices, usage, x_groq, error, object, kind = "type" }
    WireChoice {
        index,
        delta,
        /// Used in a body that is not streamed.
        message,
        finish_reason,
        error,
    }
    WireDelta { content, refusal, reasoning_content, tool_calls, annotations }
    WirePart { kind = "type", text, refusal }
    WireCall { index, id, function, extra_content }
    WireFunction { name, arguments }
    GroqPart { usage, error }
}

/// Decodes one payload, which is not `[DONE]`. `named_error` is true if the event was named `error`.
pub(crate) fn decode(payload: &str, named_error: bool) -> Result<Chunk, serde_json::Error> {
    let wire: WireChunk<'_> = serde_json::from_str(payload)?;
    let mut chunk = Chunk { usage: wire.usage.and_then(usage), ..Chunk::default() };
    chunk.response_id = name(wire.id);
    chunk.model = name(wire.model);
    chunk.error = wire.error.filter(|raw| !is_blank(raw)).and_then(|raw| StreamError::read(raw.get(), Some(payload)));
    let says_error = |raw: Raw<'_>| raw.is_some_and(|raw| raw.get() == "\"error\"");
    if chunk.error.is_none() && (named_error || says_error(wire.object) || says_error(wire.kind)) {
        chunk.error = StreamError::read(payload, None);
    }
    if let Some(groq) = wire.x_groq.and_then(object::<GroqPart<'_>>) {
        chunk.usage = chunk.usage.or_else(|| groq.usage.and_then(usage));
        chunk.error = chunk.error.or_else(|| groq.error.and_then(|raw| StreamError::read(raw.get(), None)));
    }
    // Other choices are alternative answers to the same request; only the first one is used.
    for choice in wire.choices.into_iter().flat_map(list::<WireChoice<'_>>) {
        if choice.index.and_then(number).unwrap_or(0) == 0 {
            chunk.read_choice(&choice);
        }
    }
    Ok(chunk)
}

impl Chunk {
    fn read_choice(&mut self, choice: &WireChoice<'_>) {
        if let Some(finish) = name(choice.finish_reason) {
            self.finish = Some(finish);
        }
        if self.error.is_none() {
            self.error = choice.error.filter(|raw| !is_blank(raw)).and_then(|raw| StreamError::read(raw.get(), None));
        }
        let Some(delta) = choice.delta.or(choice.message).and_then(object::<WireDelta<'_>>) else { return };
        if let Some(content) = delta.content {
            self.read_content(content);
        }
        if let Some(refusal) = delta.refusal.and_then(|raw| self.text_of(raw)) {
            self.refusal.push_str(&refusal);
        }
        if let Some(reasoning) = delta.reasoning_content.filter(|raw| raw.get().starts_with('"')) {
            // Reasoning that cannot be decoded is dropped without marking damage, because it is not part of the answer.
            self.reasoning.push_str(&serde_json::from_str::<String>(reasoning.get()).unwrap_or_default());
        }
        self.annotations.extend(delta.annotations.into_iter().flat_map(list::<Value>));
        for call in delta.tool_calls.into_iter().flat_map(list::<WireCall<'_>>) {
            let fragment = self.read_call(&call);
            self.calls.push(fragment);
        }
    }

    /// A string, or a list of parts of which only text parts count. Thinking is not shown to the user.
    fn read_content(&mut self, content: &RawValue) {
        if content.get().starts_with('"') {
            if let Some(text) = self.text_of(content) {
                self.text.push_str(&text);
            }
            return;
        }
        for part in list::<WirePart<'_>>(content) {
            let kind = name(part.kind);
            if kind.as_deref().is_none_or(|kind| kind == "text" || kind == "output_text")
                && let Some(text) = part.text.and_then(|raw| self.text_of(raw))
            {
                self.text.push_str(&text);
            }
            if let Some(refusal) = part.refusal.and_then(|raw| self.text_of(raw)) {
                self.refusal.push_str(&refusal);
            }
        }
    }

    fn read_call(&mut self, call: &WireCall<'_>) -> CallFragment {
        let function = call.function.and_then(object::<WireFunction<'_>>);
        let (called, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
        let arguments = match arguments {
            Some(raw) if raw.get().starts_with('"') => self.text_of(raw).unwrap_or_default(),
            // An object: its bytes are the exact string.
            Some(raw) => raw.get().to_owned(),
            None => String::new(),
        };
        let extra = call.extra_content.and_then(|raw| serde_json::from_str(raw.get()).ok());
        CallFragment { index: call.index.and_then(number), id: name(call.id), name: name(called), arguments, extra }
    }

    fn text_of(&mut self, raw: &RawValue) -> Option<String> {
        if !raw.get().starts_with('"') {
            return None;
        }
        let text = serde_json::from_str(raw.get()).ok();
        self.damaged |= text.is_none();
        text
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
