//! Each part of the decoder fed with anything, and what must hold whatever it is fed.
//!
//! The property tests of this crate and the targets in `fuzz/` call the same functions; each panics when its part breaks its word.

use std::sync::Arc;

use serde_json::Value;

use crate::framing::Framing;
use crate::reading::{Reader, Standing, Verdict, Wire};
use crate::sse::{SseDecoder, SseEvent};
use crate::{Delta, HistoryCall, Message, ModelRequest};
use crate::{chat, responses};

/// How bytes are cut: the first byte of the input says into what sizes, so that a fuzzer can play with it.
fn pieces(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((1, bytes), |(size, rest)| (usize::from(*size).max(1), rest))
}

/// Bytes → events: the same however they were cut.
pub fn sse(input: &[u8]) {
    let read = |size: usize, bytes: &[u8]| {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for piece in bytes.chunks(size) {
            match decoder.push(piece) {
                Ok(more) => events.extend(more),
                Err(_) => return (events, None),
            }
        }
        let last: Vec<SseEvent> = decoder.finish().into_iter().collect();
        (events, Some(last))
    };
    let (size, bytes) = pieces(input);
    let whole = read(bytes.len().max(1), bytes);
    assert_eq!(read(size, bytes), whole);
    let told: usize = whole.0.iter().map(|event| event.data.len()).sum();
    assert!(told <= bytes.len() * 3, "a replaced byte takes three; nothing else grows");
}

/// Bytes → payloads, of streams, bodies and lines.
pub fn framing(input: &[u8]) {
    let read = |size: usize, bytes: &[u8]| {
        let mut framing = Framing::default();
        let mut events = Vec::new();
        for piece in bytes.chunks(size) {
            match framing.push(piece) {
                Ok(more) => events.extend(more),
                Err(_) => return (events, None),
            }
        }
        (events, Some(framing.finish()))
    };
    let (size, bytes) = pieces(input);
    assert_eq!(read(size, bytes), read(bytes.len().max(1), bytes));
}

/// One payload → what it says, over Chat Completions.
pub fn chat_decode(input: &[u8]) {
    let _ = chat::parts::decode(&String::from_utf8_lossy(input), input.len().is_multiple_of(2));
}

/// One payload → what it says, over Responses.
pub fn responses_decode(input: &[u8]) {
    let _ = responses::parts::decode(&String::from_utf8_lossy(input), None);
    let _ = responses::parts::decode(&String::from_utf8_lossy(input), Some("response.completed"));
}

/// Payloads, one per line → an answer and whether it may run, over Chat Completions.
pub fn chat_assemble(input: &[u8]) {
    assemble::<chat::parts::Assembly>(input);
}

/// Payloads, one per line → an answer and whether it may run, over Responses.
pub fn responses_assemble(input: &[u8]) {
    assemble::<responses::parts::Assembly>(input);
}

fn assemble<W: Wire>(input: &[u8]) {
    let mut wire = W::default();
    let mut shown = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        let event = SseEvent { name: None, data: String::from_utf8_lossy(line).into_owned(), damaged: false };
        if wire.take(&event.data, &event, &mut shown).is_err() {
            break;
        }
    }
    let standing = wire.standing();
    if wire.failure().is_some() {
        assert_eq!(standing, Standing::Failed);
    }
    let answer = wire.into_answer(standing == Standing::Whole);
    assert_eq!(answer.executable, standing == Standing::Whole);
    assert!(!answer.executable || answer.finish.is_some(), "nothing runs that did not end");
}

/// Bytes → an answer, over Chat Completions.
pub fn chat_answer(input: &[u8]) {
    answer::<chat::parts::Assembly>(input);
}

/// Bytes → an answer, over Responses.
pub fn responses_answer(input: &[u8]) {
    answer::<responses::parts::Assembly>(input);
}

fn answer<W: Wire>(input: &[u8]) {
    let read = |size: usize, bytes: &[u8]| {
        let mut reader = Reader::<W>::default();
        let mut deltas: Vec<Delta> = bytes.chunks(size).flat_map(|piece| reader.push(piece)).collect();
        let (late, Verdict { answer, fault }) = reader.finish();
        deltas.extend(late);
        (deltas, answer, fault)
    };
    let (size, bytes) = pieces(input);
    let (deltas, answer, fault) = read(bytes.len().max(1), bytes);
    assert_eq!(read(size, bytes), (deltas, answer.clone(), fault.clone()));
    assert!(fault.is_none() || !answer.executable, "an answer with a fault runs nothing");
}

/// A history with anything kept beside it → a body that is JSON, with every call and every result in it once.
pub fn responses_encode(input: &[u8]) {
    let kept: Value = serde_json::from_slice(input).unwrap_or(Value::Null);
    let text = String::from_utf8_lossy(input).into_owned();
    let call = |id: &str| HistoryCall { id: id.to_owned(), name: text.clone(), arguments: text.clone() };
    let tool = |id: &str| Message::Tool { call_id: id.to_owned(), name: String::new(), content: text.clone() };
    let messages = |carry| {
        let calls = vec![call("a"), call("b")];
        // Short enough that something kept may fit it.
        let content = text[..text.floor_char_boundary(3)].to_owned();
        vec![Message::Assistant { content, calls, carry }, tool("b"), tool("a"), Message::user(text.clone())]
    };
    for pairs in [false, true] {
        for carry in [Some(responses::parts::sealed(kept.clone())), Some(kept.clone()), None] {
            let request = ModelRequest { messages: Arc::new(messages(carry)), ..ModelRequest::default() };
            let body = responses::parts::encode(&request, pairs);
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
#[path = "parts_tests.rs"]
mod tests;
