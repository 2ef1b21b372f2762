//! Encodes a request as the body of Chat Completions.

use serde_json::{Map, Value, json};

use super::assemble::Assembly;
use crate::carry::Origin;
use crate::encoding::{
    ToolCache, decides_parallel_itself, is_reasoning_model, open_body, put, put_choice, put_field, valid_arguments, valid_name,
};
use crate::provider::Api;
use crate::{Message, ModelRequest, ToolDefinition};

/// The client options that are passed on.
const PASSED_OPTIONS: [&str; 9] =
    ["top_p", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "response_format", "reasoning_effort", "verbosity"];
const SAMPLING_OPTIONS: [&str; 5] = ["top_p", "stop", "frequency_penalty", "presence_penalty", "logit_bias"];

/// The text of a result that has only pictures or files.
const ATTACHED: &str = "The result follows in the next message.";

/// How one server deviates from the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// OpenAI itself accepts only the new name of the token limit.
    pub(super) at_openai: bool,
}

fn put_message(out: &mut Vec<u8>, message: &Message, origin: &Origin) -> serde_json::Result<()> {
    match message {
        Message::System { content } => put_content(out, "system", content)?,
        Message::User { content, parts } => put_user_content(out, content, parts)?,
        Message::Assistant { content, calls, .. } if calls.is_empty() => put_content(out, "assistant", content)?,
        Message::Assistant { content, calls, carry } => {
            // Besides calls, empty content is omitted: some servers reject null, others an empty string.
            if content.is_empty() {
                out.extend_from_slice(b"{\"role\":\"assistant\"");
            } else {
                put_content(out, "assistant", content)?;
            }
            let carried = origin.content_of(carry.as_ref());
            if let Some(reasoning) = carried.and_then(|carried| carried.get("reasoning_content")) {
                put_field(out, "reasoning_content", reasoning)?;
            }
            out.extend_from_slice(b",\"tool_calls\":[");
            for (position, call) in calls.iter().enumerate() {
                out.extend_from_slice(if position == 0 { b"{\"id\":" } else { b",{\"id\":" });
                put(out, call.id.as_str())?;
                out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
                put(out, &*valid_name(&call.name))?;
                out.extend_from_slice(b",\"arguments\":");
                put(out, valid_arguments(&call.arguments))?;
                out.push(b'}');
                if let Some(extra) = carried.and_then(|carried| extra_content_of(carried, position)) {
                    put_field(out, "extra_content", extra)?;
                }
                out.push(b'}');
            }
            out.push(b']');
        }
        Message::Tool { call_id, content, parts, .. } => {
            put_content(out, "tool", if content.is_empty() && !parts.is_empty() { ATTACHED } else { content })?;
            put_field(out, "tool_call_id", call_id.as_str())?;
        }
    }
    out.push(b'}');
    Ok(())
}

/// Collects the pictures and files of a result. A message with the role `tool` has only text here.
fn attach(attached: &mut Vec<Value>, call_id: &str, parts: &[Value]) {
    let mut files = parts.iter().filter(|part| part["type"] != "text").peekable();
    if files.peek().is_some() {
        attached.push(json!({"type": "text", "text": format!("From the result of the call {call_id}:")}));
        attached.extend(files.cloned());
    }
}

/// Writes the pictures and files of results as a message of the user. It follows all results of a step, because nothing may stand between them.
fn put_attached(out: &mut Vec<u8>, attached: &mut Vec<Value>) -> serde_json::Result<()> {
    if attached.is_empty() {
        return Ok(());
    }
    comma(out);
    put_user_content(out, "", attached)?;
    out.push(b'}');
    attached.clear();
    Ok(())
}

fn comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
}

fn extra_content_of(carried: &Map<String, Value>, position: usize) -> Option<&Value> {
    carried.get("extra_content")?.get(position).filter(|extra| !extra.is_null())
}

/// Writes an open object with a user message; images and files are sent as parts.
fn put_user_content(out: &mut Vec<u8>, content: &str, parts: &[Value]) -> serde_json::Result<()> {
    if parts.is_empty() {
        return put_content(out, "user", content);
    }
    out.extend_from_slice(b"{\"role\":\"user\"");
    put_field(out, "content", parts)
}

/// Writes an open object with role and content.
fn put_content(out: &mut Vec<u8>, role: &str, content: &str) -> serde_json::Result<()> {
    out.extend_from_slice(b"{\"role\":\"");
    out.extend_from_slice(role.as_bytes());
    out.extend_from_slice(b"\",\"content\":");
    put(out, content)
}

impl Api for Dialect {
    const NAME: &'static str = "chat";
    const PATH: &'static [&'static str] = &["chat", "completions"];
    type Assembly = Assembly;

    fn at(host: &str) -> Self {
        Self { at_openai: host == "api.openai.com" || host.ends_with(".api.openai.com") }
    }

    fn body(&self, request: &ModelRequest, origin: &Origin, max_output_tokens: u32, tools: &ToolCache) -> serde_json::Result<Vec<u8>> {
        let model = origin.model.as_str();
        let tools = tools.offered(request)?;
        let mut out = open_body(request, model, tools.as_deref())?;
        out.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        let reasoning = is_reasoning_model(model);
        let limit = if reasoning || self.at_openai { "max_completion_tokens" } else { "max_tokens" };
        put_field(&mut out, limit, &request.token_limit(max_output_tokens))?;
        if let Some(temperature) = request.temperature.filter(|temperature| !reasoning && temperature.is_finite()) {
            put_field(&mut out, "temperature", &temperature)?;
        }
        for (name, value) in request.options.iter().filter(|(name, _)| PASSED_OPTIONS.contains(&name.as_str())) {
            // Reasoning models reject sampling options.
            if !(reasoning && SAMPLING_OPTIONS.contains(&name.as_str())) {
                put_field(&mut out, name, value)?;
            }
        }
        if let Some(tools) = tools {
            out.extend_from_slice(b",\"tools\":");
            out.extend_from_slice(&tools);
            put_choice(&mut out, &request.tool_choice, b"{\"type\":\"function\",\"function\":{\"name\":", b"}}")?;
            if let Some(parallel) = request.parallel_tool_calls.filter(|_| !decides_parallel_itself(model)) {
                put_field(&mut out, "parallel_tool_calls", &parallel)?;
            }
        }
        out.extend_from_slice(b",\"messages\":[");
        if !request.system.is_empty() {
            put_content(&mut out, "system", &request.system)?;
            out.push(b'}');
        }
        let mut attached: Vec<Value> = Vec::new();
        for message in request.messages.iter() {
            if !matches!(message, Message::Tool { .. }) {
                put_attached(&mut out, &mut attached)?;
            }
            comma(&mut out);
            put_message(&mut out, message, origin)?;
            if let Message::Tool { call_id, parts, .. } = message {
                attach(&mut attached, call_id, parts);
            }
        }
        put_attached(&mut out, &mut attached)?;
        out.extend_from_slice(b"]}");
        Ok(out)
    }

    fn tools(tools: &[ToolDefinition]) -> serde_json::Result<Vec<u8>> {
        let mut out = vec![b'['];
        for (position, tool) in tools.iter().enumerate() {
            out.extend_from_slice(if position == 0 { b"" } else { b"," });
            out.extend_from_slice(b"{\"type\":\"function\",\"function\":{\"name\":");
            put(&mut out, tool.name.as_str())?;
            put_field(&mut out, "description", tool.description.as_str())?;
            put_field(&mut out, "parameters", &tool.parameters)?;
            // Servers other than OpenAI may not support the field, so it is sent only if true.
            out.extend_from_slice(if tool.strict { b",\"strict\":true}}" } else { b"}}" });
        }
        out.push(b']');
        Ok(out)
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
