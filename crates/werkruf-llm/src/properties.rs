//! Properties of each decoder stage that must hold for any input.
//!
//! The property tests of this crate and the targets in `fuzz/` call these functions; each panics when its property does not hold.

use std::sync::Arc;

use serde_json::Value;

use crate::framing::Framing;
use crate::reader::{AnswerState, ReadOutcome, Reader, Wire};
use crate::sse::{SseDecoder, SseError, SseEvent};
use crate::{Delta, HistoryCall, Message, ModelRequest};
use crate::{chat, responses};

/// The chunk size and the remaining bytes: the first byte of the input is the size, so that a fuzzer can vary it.
fn chunk_size(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((1, bytes), |(size, rest)| (usize::from(*size).max(1), rest))
}

/// The events of all chunks up to the first error, and whether there was none.
fn push_chunks(bytes: &[u8], size: usize, mut push: impl FnMut(&[u8]) -> Result<Vec<SseEvent>, SseError>) -> (Vec<SseEvent>, bool) {
    let mut events = Vec::new();
    for chunk in bytes.chunks(size) {
        match push(chunk) {
            Ok(more) => events.extend(more),
            Err(_) => return (events, false),
        }
    }
    (events, true)
}

/// Bytes → events: the chunk size must not change the result.
pub fn sse(input: &[u8]) {
    let read = |size: usize, bytes: &[u8]| {
        let mut decoder = SseDecoder::default();
        let (events, complete) = push_chunks(bytes, size, |piece| decoder.push(piece));
        (events, complete.then(|| decoder.finish()))
    };
    let (size, bytes) = chunk_size(input);
    let whole = read(bytes.len().max(1), bytes);
    assert_eq!(read(size, bytes), whole);
    let decoded: usize = whole.0.iter().map(|event| event.data.len()).sum();
    assert!(decoded <= bytes.len() * 3, "a replaced byte takes three bytes; nothing else grows");
}

/// Bytes → payloads, for event streams, bodies and lines.
pub fn framing(input: &[u8]) {
    let read = |size: usize, bytes: &[u8]| {
        let mut framing = Framing::default();
        let (events, complete) = push_chunks(bytes, size, |piece| framing.push(piece));
        (events, complete.then(|| framing.finish()))
    };
    let (size, bytes) = chunk_size(input);
    assert_eq!(read(size, bytes), read(bytes.len().max(1), bytes));
}

/// One payload → a chunk of Chat Completions.
pub fn chat_decode(input: &[u8]) {
    let _ = chat::internals::decode(&String::from_utf8_lossy(input), input.len().is_multiple_of(2));
}

/// One payload → an event of Responses.
pub fn responses_decode(input: &[u8]) {
    let _ = responses::internals::decode(&String::from_utf8_lossy(input), None);
    let _ = responses::internals::decode(&String::from_utf8_lossy(input), Some("response.completed"));
}

/// Payloads, one per line → an answer and its state, for Chat Completions.
pub fn chat_assemble(input: &[u8]) {
    assemble::<chat::internals::Assembly>(input);
}

/// Payloads, one per line → an answer and its state, for Responses.
pub fn responses_assemble(input: &[u8]) {
    assemble::<responses::internals::Assembly>(input);
}

fn assemble<W: Wire>(input: &[u8]) {
    let mut wire = W::default();
    let mut deltas = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        let event = SseEvent { name: None, data: String::from_utf8_lossy(line).into_owned(), damaged: false };
        if wire.add_payload(&event.data, &event, &mut deltas).is_err() {
            break;
        }
    }
    let state = wire.state();
    if wire.failure().is_some() {
        assert_eq!(state, AnswerState::Failed);
    }
    let answer = wire.into_answer(state == AnswerState::Complete);
    assert_eq!(answer.executable, state == AnswerState::Complete);
    assert!(!answer.executable || answer.finish.is_some(), "an answer without an end is not executable");
}

/// Bytes → an answer, for Chat Completions.
pub fn chat_answer(input: &[u8]) {
    answer::<chat::internals::Assembly>(input);
}

/// Bytes → an answer, for Responses.
pub fn responses_answer(input: &[u8]) {
    answer::<responses::internals::Assembly>(input);
}

fn answer<W: Wire>(input: &[u8]) {
    let read = |size: usize, bytes: &[u8]| {
        let mut reader = Reader::<W>::default();
        let mut deltas: Vec<Delta> = bytes.chunks(size).flat_map(|piece| reader.push(piece)).collect();
        let (late, ReadOutcome { answer, fault }) = reader.finish();
        deltas.extend(late);
        (deltas, answer, fault)
    };
    let (size, bytes) = chunk_size(input);
    let (deltas, answer, fault) = read(bytes.len().max(1), bytes);
    assert_eq!(read(size, bytes), (deltas, answer.clone(), fault.clone()));
    assert!(fault.is_none() || !answer.executable, "an answer with a fault is not executable");
}

/// A history with arbitrary carried data → a JSON body that contains every call and every result once.
pub fn responses_encode(input: &[u8]) {
    let content: Value = serde_json::from_slice(input).unwrap_or(Value::Null);
    let text = String::from_utf8_lossy(input).into_owned();
    let call = |id: &str| HistoryCall { id: id.to_owned(), name: text.clone(), arguments: text.clone() };
    let tool = |id: &str| Message::result(id, "", text.as_str());
    let messages = |carry| {
        let calls = vec![call("a"), call("b")];
        // Short enough that carried data may match it.
        let content = text[..text.floor_char_boundary(3)].to_owned();
        vec![Message::Assistant { content, calls, carry }, tool("b"), tool("a"), Message::user(text.clone())]
    };
    for pairs in [false, true] {
        for carry in [Some(responses::internals::labelled(content.clone())), Some(content.clone()), None] {
            let request = ModelRequest { messages: Arc::new(messages(carry)), ..ModelRequest::default() };
            let body = responses::internals::encode(&request, pairs);
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let count = |kind: &str, id: &str| {
                let items = body["input"].as_array().into_iter().flatten();
                items.filter(|item| item["type"] == kind && item["call_id"] == id).count()
            };
            for id in ["a", "b"] {
                assert_eq!((count("function_call", id), count("function_call_output", id)), (1, 1), "{body}");
            }
        }
    }
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
