//! A recorded stream to what it says, for people and for `wire inspect`.

use serde_json::{Value, json};
use werkruf_contract::CallKind;

use crate::chat::{ChatReader, Verdict};
use crate::{AskedCall, TokenUsage};

/// Which wire a recording speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireApi {
    Chat,
    Responses,
}

/// Why a recording cannot be inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    #[error("streams of the Responses API cannot be inspected yet; use --api chat")]
    ResponsesNotBuilt,
}

/// Feeds the bytes, `chunk` at a time (zero: all at once), to the same reader a turn uses, and tells what came out.
pub fn inspect(api: WireApi, bytes: &[u8], chunk: usize) -> Result<Value, InspectError> {
    match api {
        WireApi::Chat => Ok(inspect_chat(bytes, chunk)),
        WireApi::Responses => Err(InspectError::ResponsesNotBuilt),
    }
}

fn inspect_chat(bytes: &[u8], chunk: usize) -> Value {
    let mut reader = ChatReader::default();
    for piece in bytes.chunks(if chunk == 0 { bytes.len().max(1) } else { chunk }) {
        reader.push(piece);
    }
    let (_, Verdict { mut answer, fault }) = reader.finish();
    if let Some((_, message)) = fault
        && !answer.errors.contains(&message)
    {
        answer.errors.push(message);
    }
    let calls: Vec<Value> = answer.calls.iter().map(call).collect();
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

fn call(call: &AskedCall) -> Value {
    let kind = match call.kind {
        CallKind::Function => "function_call",
        CallKind::Mcp => "mcp_call",
        CallKind::WebSearch => "web_search_call",
        CallKind::Custom => "custom_tool_call",
    };
    // A turn would name the call after its job; here its place is all there is.
    let call_id = call.call_id.clone().unwrap_or_else(|| format!("call_at_{}", call.output_index));
    json!({
        "kind": kind,
        "item_id": call.item_id,
        "call_id": call_id,
        "output_index": call.output_index,
        "name": call.name,
        "arguments": call.arguments,
        "output": null,
        "status": null,
        "error": null,
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
