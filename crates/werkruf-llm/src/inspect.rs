//! Decodes a recorded stream into JSON, for `wire inspect`.

use serde_json::{Value, json};
use werkruf_contract::CallKind;

use crate::chat::ChatReader;
use crate::reader::{ReadOutcome, Reader, Wire};
use crate::responses::ResponsesReader;
use crate::{Answer, ProviderItem, TokenUsage, ToolCall};

/// The API of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireApi {
    Chat,
    Responses,
}

/// Decodes the bytes, `chunk` bytes at a time (zero: all at once), with the same reader as a turn.
pub fn inspect(api: WireApi, bytes: &[u8], chunk: usize) -> Value {
    let answer = match api {
        WireApi::Chat => {
            let mut answer = read(ChatReader::default(), bytes, chunk);
            for call in &mut answer.calls {
                // A turn would derive the missing id from its job; here only the index is known.
                call.call_id.get_or_insert_with(|| format!("call_at_{}", call.output_index));
            }
            answer
        }
        WireApi::Responses => read(ResponsesReader::default(), bytes, chunk),
    };
    let mut calls: Vec<(u32, Value)> = answer.calls.iter().map(|requested| (requested.output_index, call(requested))).collect();
    calls.extend(answer.items.iter().map(|ran| (ran.output_index, item(ran))));
    calls.sort_unstable_by_key(|(output_index, _)| *output_index);
    let calls: Vec<Value> = calls.into_iter().map(|(_, call)| call).collect();
    json!({
        "text": answer.text,
        "refusal": answer.refusal,
        "finish": answer.finish,
        "executable": answer.executable,
        "tool_calls": calls,
        "usage": answer.usage.map(usage),
        "errors": answer.errors,
    })
}

fn read<W: Wire>(mut reader: Reader<W>, bytes: &[u8], chunk: usize) -> Answer {
    for piece in bytes.chunks(if chunk == 0 { bytes.len().max(1) } else { chunk }) {
        reader.push(piece);
    }
    let (_, ReadOutcome { mut answer, fault }) = reader.finish();
    if let Some((_, message)) = fault
        && !answer.errors.contains(&message)
    {
        answer.errors.push(message);
    }
    answer
}

fn call(call: &ToolCall) -> Value {
    let kind = match call.kind {
        CallKind::Function => "function_call",
        CallKind::Mcp => "mcp_approval_request",
        CallKind::WebSearch => "web_search_call",
        CallKind::Custom => "custom_tool_call",
    };
    json!({
        "kind": kind,
        "item_id": call.item_id,
        "call_id": call.call_id,
        "output_index": call.output_index,
        "name": call.name,
        "arguments": call.arguments,
        "output": null,
        "status": call.status,
        "error": null,
    })
}

fn item(item: &ProviderItem) -> Value {
    json!({
        "kind": item.kind,
        "item_id": item.item_id,
        "call_id": item.call_id,
        "output_index": item.output_index,
        "name": item.name,
        "arguments": item.arguments,
        "output": item.output,
        "status": item.status,
        "error": item.error,
    })
}

fn usage(usage: TokenUsage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.total_tokens,
    })
}
