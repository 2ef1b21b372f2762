//! Turns a script into the pieces of a Responses body, as OpenAI would send them.
//!
//! Pieces are cut so that a script's deltas count the same in both APIs: events that only frame a delta are in the same piece.

use bytes::Bytes;
use serde_json::{Value, json};

use super::events::{Pieces, id_of};
use super::reply::{Call, Script};

/// The events of a stream. Calls without an id are numbered from `next_call`.
pub(super) fn stream_pieces(script: &Script, model: &str, number: usize, next_call: &mut usize) -> Pieces {
    let mut stream = Stream { number, sequence: 0, output: Vec::new(), pieces: Vec::new(), framing: String::new() };
    let started = stream.response(model, script, "in_progress");
    stream.frame("response.created", json!({"response": started}));
    stream.frame("response.in_progress", json!({"response": started}));
    stream.cut();
    for item in &script.before {
        stream.whole_item(item);
    }
    if !script.text.is_empty() || script.refusal.is_some() {
        stream.message(script);
    }
    for call in &script.calls {
        let id = id_of(call, next_call);
        stream.call(call, &id, script);
    }
    let deltas = stream.pieces.len() - 1;
    if let Some(error) = &script.error {
        stream.frame("error", json!({"error": error}));
        let mut failed = stream.response(model, script, "failed");
        failed["error"] = json!({"code": error["code"], "message": error["message"]});
        stream.frame("response.failed", json!({"response": failed}));
    } else {
        let status = status(script);
        let ended = stream.response(model, script, status);
        stream.frame(&format!("response.{status}"), json!({"response": ended}));
    }
    stream.cut();
    Pieces { all: stream.pieces, deltas }
}

/// The body of a response that is not streamed.
pub(super) fn whole_body(script: &Script, model: &str, number: usize, next_call: &mut usize) -> Value {
    let mut stream = Stream { number, sequence: 0, output: script.before.clone(), pieces: Vec::new(), framing: String::new() };
    if !script.text.is_empty() || script.refusal.is_some() {
        stream.message(script);
    }
    for call in &script.calls {
        let id = id_of(call, next_call);
        stream.call(call, &id, script);
    }
    stream.response(model, script, status(script))
}

fn status(script: &Script) -> &'static str {
    if matches!(script.finish.as_deref(), Some("length" | "content_filter")) { "incomplete" } else { "completed" }
}

/// A stream under construction.
struct Stream {
    number: usize,
    sequence: u64,
    /// Finished items.
    output: Vec<Value>,
    pieces: Vec<Bytes>,
    /// Events of the next piece, until its delta is complete.
    framing: String,
}

impl Stream {
    fn frame(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        self.framing.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    }

    fn cut(&mut self) {
        self.pieces.push(Bytes::from(std::mem::take(&mut self.framing)));
    }

    fn at(&self) -> usize {
        self.output.len()
    }

    fn finish(&mut self, item: Value) {
        self.frame("response.output_item.done", json!({"output_index": self.at(), "item": item}));
        self.output.push(item);
    }

    /// Adds a reasoning item or a provider item.
    fn whole_item(&mut self, item: &Value) {
        let mut started = item.clone();
        for field in ["output", "error", "encrypted_content"].iter().filter(|field| item.get(**field).is_some()) {
            started[*field] = Value::Null;
        }
        if item.get("status").is_some() {
            started["status"] = json!("in_progress");
        }
        self.frame("response.output_item.added", json!({"output_index": self.at(), "item": started}));
        self.cut();
        self.finish(item.clone());
        self.cut();
    }

    fn message(&mut self, script: &Script) {
        let (at, id) = (self.at(), format!("msg_fake_{}_{}", self.number, self.at()));
        let message =
            |content: Value, status: &str| json!({"type": "message", "id": id, "role": "assistant", "status": status, "content": content});
        let part = |refusal: bool, text: &str| match refusal {
            true => json!({"type": "refusal", "refusal": text}),
            false if text.is_empty() => json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []}),
            false => json!({"type": "output_text", "text": text, "annotations": script.annotations, "logprobs": []}),
        };
        self.frame("response.output_item.added", json!({"output_index": at, "item": message(json!([]), "in_progress")}));
        let mut content = Vec::new();
        let parts = [(false, script.text.clone()), (true, script.refusal.iter().cloned().collect())];
        for (refusal, pieces) in parts.into_iter().filter(|(_, pieces)| !pieces.is_empty()) {
            let kind = if refusal { "refusal" } else { "output_text" };
            let located = |event: Value| {
                let mut event = event;
                (event["item_id"], event["output_index"], event["content_index"]) = (json!(id), json!(at), json!(content.len()));
                event
            };
            self.frame("response.content_part.added", located(json!({"part": part(refusal, "")})));
            for (nth, piece) in pieces.iter().enumerate() {
                self.frame(&format!("response.{kind}.delta"), located(json!({"delta": piece, "obfuscation": "x".repeat(nth % 3)})));
                self.cut();
            }
            let text = pieces.concat();
            for (index, annotation) in script.annotations.iter().enumerate().filter(|_| !refusal) {
                let event = json!({"annotation_index": index, "annotation": annotation});
                self.frame("response.output_text.annotation.added", located(event));
            }
            let all = if refusal { json!({"refusal": text}) } else { json!({"text": text, "logprobs": []}) };
            self.frame(&format!("response.{kind}.done"), located(all));
            self.frame("response.content_part.done", located(json!({"part": part(refusal, &text)})));
            content.push(part(refusal, &text));
        }
        self.finish(message(Value::Array(content), "completed"));
    }

    fn call(&mut self, call: &Call, call_id: &str, script: &Script) {
        let (at, id) = (self.at(), format!("fc_fake_{}_{}", self.number, self.at()));
        let whole = script.whole_arguments;
        let item = |arguments: &Value, status: &str| json!({"type": "function_call", "id": id, "call_id": call_id, "name": call.name, "arguments": arguments, "status": status});
        self.frame("response.output_item.added", json!({"output_index": at, "item": item(&json!(""), "in_progress")}));
        if !whole {
            self.cut();
        }
        let middle = if whole { call.arguments.len() } else { call.arguments.floor_char_boundary(call.arguments.len() / 2) };
        let (first, second) = call.arguments.split_at(middle);
        for piece in [first, second].into_iter().filter(|piece| !piece.is_empty()) {
            self.frame("response.function_call_arguments.delta", json!({"output_index": at, "item_id": id, "delta": piece}));
            self.cut();
        }
        let object = || serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
        let arguments = if script.object_arguments { object() } else { json!(call.arguments) };
        self.frame("response.function_call_arguments.done", json!({"output_index": at, "item_id": id, "arguments": arguments}));
        self.finish(item(&arguments, "completed"));
    }

    fn response(&self, model: &str, script: &Script, status: &str) -> Value {
        let reason = if script.finish.as_deref() == Some("content_filter") { "content_filter" } else { "max_output_tokens" };
        let (input, output) = script.usage.unwrap_or((10, 5));
        let usage = json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output});
        let ended = matches!(status, "completed" | "incomplete");
        json!({
            "id": format!("resp_fake_{}", self.number), "object": "response", "created_at": 1_700_000_000, "status": status, "model": model,
            "error": null, "incomplete_details": if status == "incomplete" { json!({"reason": reason}) } else { Value::Null },
            "output": self.output, "usage": if ended { usage } else { Value::Null },
        })
    }
}
