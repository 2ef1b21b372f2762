//! Turns a script into the pieces of a Chat Completions body, as OpenAI would send them unless the script has quirks.

use bytes::Bytes;
use serde_json::{Value, json};

use super::reply::{Call, Script};

/// The pieces of one streamed body.
pub(super) struct Pieces {
    /// The role, the deltas, then the end of the response.
    pub(super) all: Vec<Bytes>,
    /// How many of them are deltas.
    pub(super) deltas: usize,
}

/// The events of a stream. Calls without an id are numbered from `next_call`.
pub(super) fn stream_pieces(script: &Script, model: &str, number: usize, next_call: &mut usize) -> Pieces {
    let event = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": format!("chatcmpl-fake-{number}"), "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model,
            "choices": choices, "usage": usage,
        });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let delta = |delta: Value| event(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    let mut deltas: Vec<Bytes> = script.text.iter().map(|text| delta(json!({"content": text}))).collect();
    deltas.extend(script.refusal.iter().map(|refusal| delta(json!({"refusal": refusal}))));
    for (index, call) in script.calls.iter().enumerate() {
        let fragments = call_fragments(script, call, index, next_call);
        deltas.extend(fragments.into_iter().map(|fragment| delta(json!({"tool_calls": [fragment]}))));
    }
    let count = deltas.len();
    let mut all = vec![delta(json!({"role": "assistant", "content": if script.text.is_empty() { Value::Null } else { json!("") }}))];
    all.append(&mut deltas);
    all.extend(script.annotations.iter().map(|annotation| delta(json!({"annotations": [nested(annotation)]}))));
    if let Some(error) = &script.error {
        all.push(Bytes::from(format!("data: {}\n\n", json!({"error": error}))));
        return Pieces { all, deltas: count };
    }
    all.push(event(json!([{"index": 0, "delta": {}, "finish_reason": finish(script)}]), Value::Null));
    all.push(event(json!([]), usage(script)));
    if !script.without_done {
        all.push(Bytes::from_static(b"data: [DONE]\n\n"));
    }
    Pieces { all, deltas: count }
}

/// The body of a response that is not streamed.
pub(super) fn whole_body(script: &Script, model: &str, number: usize, next_call: &mut usize) -> Value {
    let calls: Vec<Value> = script
        .calls
        .iter()
        .map(|call| json!({"id": id_of(call, next_call), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}))
        .collect();
    let mut message = json!({"role": "assistant", "content": script.text.concat(), "refusal": script.refusal});
    if !script.annotations.is_empty() {
        message["annotations"] = script.annotations.iter().map(nested).collect();
    }
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    json!({
        "id": format!("chatcmpl-fake-{number}"), "object": "chat.completion", "created": 1_700_000_000, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(script)}], "usage": usage(script),
    })
}

/// An annotation as Chat Completions writes it.
fn nested(annotation: &Value) -> Value {
    let (kind, mut fields) = (annotation["type"].as_str().unwrap_or_default(), annotation.clone());
    fields.as_object_mut().map(|fields| fields.remove("type"));
    json!({"type": kind, kind: fields})
}

fn call_fragments(script: &Script, call: &Call, index: usize, next_call: &mut usize) -> Vec<Value> {
    let id = id_of(call, next_call);
    let mut head = json!({"index": index, "id": id, "type": "function", "function": {"name": call.name, "arguments": ""}});
    if script.without_index {
        head.as_object_mut().map(|head| head.remove("index"));
    } else if script.index_zero {
        head["index"] = json!(0);
    }
    if script.object_arguments {
        head["function"]["arguments"] = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
        return vec![head];
    }
    if script.whole_arguments {
        head["function"]["arguments"] = json!(call.arguments);
        return vec![head];
    }
    let (first, second) = call.arguments.split_at(call.arguments.floor_char_boundary(call.arguments.len() / 2));
    let mut fragments = vec![head.clone()];
    for arguments in [first, second].into_iter().filter(|part| !part.is_empty()) {
        if script.repeat_ids {
            head["function"]["arguments"] = json!(arguments);
            fragments.push(head.clone());
        } else {
            fragments.push(json!({"index": index, "function": {"arguments": arguments}}));
        }
    }
    fragments
}

pub(super) fn id_of(call: &Call, next_call: &mut usize) -> String {
    call.id.clone().unwrap_or_else(|| {
        *next_call += 1;
        format!("call_{next_call}")
    })
}

fn finish(script: &Script) -> &str {
    match &script.finish {
        Some(finish) => finish,
        None if script.calls.is_empty() => "stop",
        None => "tool_calls",
    }
}

fn usage(script: &Script) -> Value {
    let (prompt, completion) = script.usage.unwrap_or((10, 5));
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}
