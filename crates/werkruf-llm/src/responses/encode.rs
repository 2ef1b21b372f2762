//! Encodes a request as the body of the Responses API.
//!
//! Nothing is stored at the provider (`store: false`): the whole history is sent, with encrypted reasoning.

use serde_json::{Map, Value, json};

use super::assemble::Assembly;
use super::carried::{Slot, plain, result_of, to_slots};
use crate::carry::Origin;
use crate::encoding::{ToolCache, is_reasoning_model, open_body, put, put_choice, put_field, valid_arguments, valid_name};
use crate::provider::Api;
use crate::{ApprovalAnswer, HistoryCall, Message, ModelRequest, ToolDefinition};

/// How one server deviates from the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// A result must follow its call directly, not after the other calls (DeepSeek).
    pub(super) pairs: bool,
}

/// A request for permission that was written as such, and the answer that stands for its result.
type Answered<'a> = (&'a ApprovalAnswer, &'a Value);

fn put_history(out: &mut Vec<u8>, request: &ModelRequest, origin: &Origin, dialect: Dialect) -> serde_json::Result<()> {
    let messages = request.messages.as_slice();
    // The indexes of results that were already written beside their calls.
    let mut written: Vec<usize> = Vec::new();
    let mut answered: Vec<Answered<'_>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::System { content } => put_message(out, "system", content, None, None)?,
            Message::User { content, parts } if parts.is_empty() => put_message(out, "user", content, None, None)?,
            Message::User { parts, .. } => put_parts(out, parts)?,
            Message::Assistant { content, calls, carry } => {
                let carried = origin.content_of(carry.as_ref()).and_then(|carried| to_slots(carried, content, calls));
                let slots = carried.unwrap_or_else(|| plain(content, calls));
                for (place, slot) in slots.iter().enumerate() {
                    if slot.is_reasoning() && is_rewritten(request, &slots[place..]) {
                        continue;
                    }
                    let answer = answer_to(request, slot);
                    answered.extend(answer);
                    put_slot(out, slot, answer.is_some())?;
                    if let Slot::Call(call) | Slot::Request(call, _) = slot
                        && dialect.pairs
                        && let Some((offset, (content, parts))) = result_of(&messages[at + 1..], &call.id)
                    {
                        put_outcome(out, &answered, &call.id, content, parts)?;
                        written.push(at + 1 + offset);
                    }
                }
            }
            Message::Tool { .. } if written.contains(&at) => {}
            Message::Tool { call_id, content, parts, .. } => put_outcome(out, &answered, call_id, content, parts)?,
        }
    }
    Ok(())
}

/// The answer that leaves with this request, and the request for permission that it answers.
fn answer_to<'a>(request: &'a ModelRequest, slot: &Slot<'a>) -> Option<Answered<'a>> {
    match slot {
        Slot::Request(call, item) if item["id"].is_string() => {
            request.approvals.iter().find(|answer| answer.call_id == call.id).map(|answer| (answer, *item))
        }
        Slot::Request(..) | Slot::Item(_) | Slot::Message { .. } | Slot::Call(_) => None,
    }
}

/// Whether reasoning stands before a request for permission that is written as an ordinary call: the API rejects it without its own item.
fn is_rewritten(request: &ModelRequest, slots: &[Slot<'_>]) -> bool {
    let next = slots.iter().find(|slot| !slot.is_reasoning());
    next.is_some_and(|slot| matches!(slot, Slot::Request(..)) && answer_to(request, slot).is_none())
}

/// Writes a slot. A request for permission that this request does not answer is an ordinary call: the history has its result.
fn put_slot(out: &mut Vec<u8>, slot: &Slot<'_>, answered: bool) -> serde_json::Result<()> {
    match slot {
        Slot::Item(item) => put_item(out, item),
        Slot::Request(_, item) if answered => put_item(out, item),
        Slot::Message { text, id, phase } => put_message(out, "assistant", text, *id, *phase),
        Slot::Call(call) | Slot::Request(call, _) => put_call(out, call),
    }
}

fn put_item(out: &mut Vec<u8>, item: &Value) -> serde_json::Result<()> {
    comma(out);
    put(out, item)
}

/// Writes a user message with images or files, with this API's field names.
fn put_parts(out: &mut Vec<u8>, parts: &[Value]) -> serde_json::Result<()> {
    comma(out);
    out.extend_from_slice(b"{\"role\":\"user\"");
    put_field(out, "content", &parts.iter().map(part).collect::<Vec<_>>())?;
    out.push(b'}');
    Ok(())
}

fn part(chat: &Value) -> Value {
    match chat["type"].as_str() {
        Some("text") => json!({"type": "input_text", "text": chat["text"]}),
        Some("image_url") => {
            let picture = &chat["image_url"];
            let address = picture.as_str().map_or_else(|| picture["url"].clone(), Value::from);
            json!({"type": "input_image", "image_url": address, "detail": picture["detail"].as_str().unwrap_or("auto")})
        }
        Some("file") => {
            let mut file = chat["file"].as_object().cloned().unwrap_or_default();
            file.insert("type".to_owned(), "input_file".into());
            Value::Object(file)
        }
        _ => chat.clone(),
    }
}

/// Writes the client options that this API supports, with its field names.
fn put_options(out: &mut Vec<u8>, options: &Map<String, Value>, reasoning: bool) -> serde_json::Result<()> {
    if let Some(top_p) = options.get("top_p").filter(|_| !reasoning) {
        put_field(out, "top_p", top_p)?;
    }
    if let Some(effort) = options.get("reasoning_effort").filter(|_| reasoning) {
        put_field(out, "reasoning", &json!({"effort": effort}))?;
    }
    let mut text = Map::new();
    if let Some(format) = options.get("response_format") {
        // Chat Completions nests the schema; this API has it flat.
        let mut flat = format.get("json_schema").and_then(Value::as_object).cloned().unwrap_or_default();
        flat.insert("type".to_owned(), format["type"].clone());
        text.insert("format".to_owned(), Value::Object(flat));
    }
    if let Some(verbosity) = options.get("verbosity") {
        text.insert("verbosity".to_owned(), verbosity.clone());
    }
    if text.is_empty() { Ok(()) } else { put_field(out, "text", &text) }
}

/// Writes a message; a message with an id is written as the output item that it was.
fn put_message(out: &mut Vec<u8>, role: &str, text: &str, id: Option<&str>, phase: Option<&str>) -> serde_json::Result<()> {
    comma(out);
    out.extend_from_slice(b"{\"role\":");
    put(out, role)?;
    if let Some(phase) = phase {
        put_field(out, "phase", phase)?;
    }
    match id {
        Some(id) => {
            out.extend_from_slice(b",\"type\":\"message\",\"status\":\"completed\"");
            put_field(out, "id", id)?;
            out.extend_from_slice(b",\"content\":[{\"type\":\"output_text\",\"annotations\":[]");
            put_field(out, "text", text)?;
            out.extend_from_slice(b"}]");
        }
        None => put_field(out, "content", text)?,
    }
    out.push(b'}');
    Ok(())
}

fn put_call(out: &mut Vec<u8>, call: &HistoryCall) -> serde_json::Result<()> {
    comma(out);
    out.extend_from_slice(b"{\"type\":\"function_call\"");
    put_field(out, "call_id", &call.id)?;
    put_field(out, "name", &*valid_name(&call.name))?;
    put_field(out, "arguments", valid_arguments(&call.arguments))?;
    out.push(b'}');
    Ok(())
}

/// Writes the result of a call, or the answer to a request for permission.
fn put_outcome(out: &mut Vec<u8>, answered: &[Answered<'_>], call_id: &str, content: &str, parts: &[Value]) -> serde_json::Result<()> {
    let Some((answer, request)) = answered.iter().find(|(answer, _)| answer.call_id == call_id) else {
        return put_result(out, call_id, content, parts);
    };
    comma(out);
    out.extend_from_slice(b"{\"type\":\"mcp_approval_response\"");
    put_field(out, "approval_request_id", &request["id"])?;
    put_field(out, "approve", &answer.approve)?;
    if let Some(reason) = &answer.reason {
        put_field(out, "reason", reason)?;
    }
    out.push(b'}');
    Ok(())
}

fn put_result(out: &mut Vec<u8>, call_id: &str, content: &str, parts: &[Value]) -> serde_json::Result<()> {
    comma(out);
    out.extend_from_slice(b"{\"type\":\"function_call_output\"");
    put_field(out, "call_id", call_id)?;
    if parts.is_empty() {
        put_field(out, "output", content)?;
    } else {
        put_field(out, "output", &parts.iter().map(part).collect::<Vec<_>>())?;
    }
    out.push(b'}');
    Ok(())
}

fn comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
}

impl Api for Dialect {
    const NAME: &'static str = "responses";
    const PATH: &'static [&'static str] = &["responses"];
    type Assembly = Assembly;

    fn at(host: &str) -> Self {
        Self { pairs: host.ends_with("deepseek.com") }
    }

    fn body(&self, request: &ModelRequest, origin: &Origin, max_output_tokens: u32, tools: &ToolCache) -> serde_json::Result<Vec<u8>> {
        let model = origin.model.as_str();
        let tools = tools.offered(request)?;
        let mut out = open_body(request, model, tools.as_deref())?;
        out.extend_from_slice(b",\"stream\":true,\"store\":false");
        put_field(&mut out, "max_output_tokens", &request.token_limit(max_output_tokens))?;
        if !request.system.is_empty() {
            put_field(&mut out, "instructions", &request.system)?;
        }
        if is_reasoning_model(model) {
            // Models without reasoning reject this option.
            put_field(&mut out, "include", &["reasoning.encrypted_content"])?;
        } else if let Some(temperature) = request.temperature.filter(|temperature| temperature.is_finite()) {
            put_field(&mut out, "temperature", &temperature)?;
        }
        put_options(&mut out, &request.options, is_reasoning_model(model))?;
        if let Some(tools) = tools {
            out.extend_from_slice(b",\"tools\":");
            out.extend_from_slice(&tools);
            put_choice(&mut out, &request.tool_choice, b"{\"type\":\"function\",\"name\":", b"}")?;
            if let Some(parallel) = request.parallel_tool_calls {
                put_field(&mut out, "parallel_tool_calls", &parallel)?;
            }
        }
        out.extend_from_slice(b",\"input\":[");
        put_history(&mut out, request, origin, *self)?;
        out.extend_from_slice(b"]}");
        Ok(out)
    }

    /// Flat, and always with `strict`, because its default is true.
    fn tools(tools: &[ToolDefinition]) -> serde_json::Result<Vec<u8>> {
        let mut out = vec![b'['];
        for tool in tools {
            comma(&mut out);
            out.extend_from_slice(b"{\"type\":\"function\"");
            put_field(&mut out, "name", &tool.name)?;
            put_field(&mut out, "description", &tool.description)?;
            put_field(&mut out, "parameters", &tool.parameters)?;
            put_field(&mut out, "strict", &tool.strict)?;
            out.push(b'}');
        }
        out.push(b']');
        Ok(out)
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
