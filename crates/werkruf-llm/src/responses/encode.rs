//! Encodes a request as the body of the Responses API.
//!
//! Nothing is stored at the provider (`store: false`): the whole history is sent, with encrypted reasoning.

use serde_json::{Map, Value, json};

use super::assemble::Assembly;
use super::carried::{Slot, plain, result_of, to_slots};
use crate::carry::Origin;
use crate::encoding::{ToolCache, is_reasoning_model, open_body, put, put_choice, put_field, valid_arguments, valid_name};
use crate::provider::Api;
use crate::{HistoryCall, Message, ModelRequest, ToolDefinition};

/// How one server deviates from the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// A result must follow its call directly, not after the other calls (DeepSeek).
    pub(super) pairs: bool,
}

fn put_history(out: &mut Vec<u8>, messages: &[Message], origin: &Origin, dialect: Dialect) -> serde_json::Result<()> {
    // The indexes of results that were already written beside their calls.
    let mut written: Vec<usize> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::System { content } => put_message(out, "system", content, None, None)?,
            Message::User { content, parts } if parts.is_empty() => put_message(out, "user", content, None, None)?,
            Message::User { parts, .. } => put_parts(out, parts)?,
            Message::Assistant { content, calls, carry } => {
                let carried = origin.content_of(carry.as_ref()).and_then(|carried| to_slots(carried, content, calls));
                for slot in carried.unwrap_or_else(|| plain(content, calls)) {
                    put_slot(out, &slot)?;
                    if let Slot::Call(call) = slot
                        && dialect.pairs
                        && let Some((offset, (content, parts))) = result_of(&messages[at + 1..], &call.id)
                    {
                        put_result(out, &call.id, content, parts)?;
                        written.push(at + 1 + offset);
                    }
                }
            }
            Message::Tool { .. } if written.contains(&at) => {}
            Message::Tool { call_id, content, parts, .. } => put_result(out, call_id, content, parts)?,
        }
    }
    Ok(())
}

fn put_slot(out: &mut Vec<u8>, slot: &Slot<'_>) -> serde_json::Result<()> {
    match slot {
        Slot::Item(item) => {
            comma(out);
            put(out, item)
        }
        Slot::Message { text, id, phase } => put_message(out, "assistant", text, *id, *phase),
        Slot::Call(call) => put_call(out, call),
    }
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
        put_history(&mut out, &request.messages, origin, *self)?;
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
