//! A request to the bytes of its body.
//!
//! Written straight into one buffer: a history of hundreds of messages is encoded on every step, and no tree of it is needed.
//! Tool definitions hardly ever change, so their encoding is kept by the identity of the shared list.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::{Message, ModelRequest, ToolChoice, ToolDefinition};

/// How one server wants its limit spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    /// OpenAI itself knows only the new name of the limit.
    pub(super) at_openai: bool,
}

/// Encoded tool lists, the latest last. An entry keeps its list alive, so an address never means another list.
#[derive(Debug, Default)]
pub(super) struct ToolCache {
    kept: Mutex<Vec<KeptList>>,
}

#[derive(Debug)]
struct KeptList {
    list: Arc<Vec<ToolDefinition>>,
    bytes: Arc<[u8]>,
}

/// Lists kept: one per assistant in use, roughly.
const KEPT_LISTS: usize = 16;

impl ToolCache {
    fn encoded(&self, tools: &Arc<Vec<ToolDefinition>>) -> serde_json::Result<Arc<[u8]>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| Arc::ptr_eq(&known.list, tools)) {
            return Ok(Arc::clone(&known.bytes));
        }
        let bytes: Arc<[u8]> = encode_tools(tools)?.into();
        if kept.len() == KEPT_LISTS {
            kept.remove(0);
        }
        kept.push(KeptList { list: Arc::clone(tools), bytes: Arc::clone(&bytes) });
        Ok(bytes)
    }
}

/// Models that think before they speak: another name for the limit, and no temperature.
pub(super) fn is_reasoning_model(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    ["gpt-5", "o1", "o3", "o4"].iter().any(|family| model.starts_with(family))
}

/// The body of `POST /chat/completions`.
pub(super) fn encode(
    request: &ModelRequest,
    model: &str,
    max_output_tokens: u32,
    dialect: Dialect,
    cache: &ToolCache,
) -> serde_json::Result<Vec<u8>> {
    let tools = match request.tool_choice {
        ToolChoice::Auto if !request.tools.is_empty() => Some(cache.encoded(&request.tools)?),
        ToolChoice::Auto | ToolChoice::None => None,
    };
    let mut out = Vec::with_capacity(length(request) + tools.as_ref().map_or(0, |tools| tools.len()));
    out.extend_from_slice(b"{\"model\":");
    put(&mut out, model)?;
    out.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    let reasoning = is_reasoning_model(model);
    out.extend_from_slice(if reasoning || dialect.at_openai { b",\"max_completion_tokens\":" } else { b",\"max_tokens\":" });
    put(&mut out, &request.max_output_tokens.unwrap_or(max_output_tokens))?;
    if let Some(temperature) = request.temperature.filter(|temperature| !reasoning && temperature.is_finite()) {
        out.extend_from_slice(b",\"temperature\":");
        put(&mut out, &temperature)?;
    }
    if let Some(tools) = tools {
        out.extend_from_slice(b",\"tools\":");
        out.extend_from_slice(&tools);
        out.extend_from_slice(b",\"tool_choice\":\"auto\"");
    }
    out.extend_from_slice(b",\"messages\":[");
    if !request.system.is_empty() {
        put_content(&mut out, "system", &request.system)?;
        out.push(b'}');
    }
    for message in request.messages.iter() {
        if out.last() != Some(&b'[') {
            out.push(b',');
        }
        put_message(&mut out, message)?;
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

fn put_message(out: &mut Vec<u8>, message: &Message) -> serde_json::Result<()> {
    match message {
        Message::User { content } => put_content(out, "user", content)?,
        Message::Assistant { content, calls } if calls.is_empty() => put_content(out, "assistant", content)?,
        Message::Assistant { content, calls } => {
            // Beside calls an empty content is left out: some servers refuse null, others an empty string.
            if content.is_empty() {
                out.extend_from_slice(b"{\"role\":\"assistant\"");
            } else {
                put_content(out, "assistant", content)?;
            }
            out.extend_from_slice(b",\"tool_calls\":[");
            for (place, call) in calls.iter().enumerate() {
                out.extend_from_slice(if place == 0 { b"{\"id\":" } else { b",{\"id\":" });
                put(out, call.id.as_str())?;
                out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
                put(out, &*speakable(&call.name))?;
                out.extend_from_slice(b",\"arguments\":");
                put(out, whole(&call.arguments))?;
                out.extend_from_slice(b"}}");
            }
            out.push(b']');
        }
        Message::Tool { call_id, content, .. } => {
            put_content(out, "tool", content)?;
            out.extend_from_slice(b",\"tool_call_id\":");
            put(out, call_id.as_str())?;
        }
    }
    out.push(b'}');
    Ok(())
}

/// A model may make up any name, but a provider refuses a history with one it would not have given.
fn speakable(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let name: String = name.chars().take(64).map(|c| if fits(c) { c } else { '_' }).collect();
    Cow::Owned(if name.is_empty() { "unknown".to_owned() } else { name })
}

/// Arguments that are no JSON object make some servers refuse the whole conversation; the call's result says what was wrong.
fn whole(arguments: &str) -> &str {
    let object = arguments.trim_start().starts_with('{') && serde_json::from_str::<&serde_json::value::RawValue>(arguments).is_ok();
    if object { arguments } else { "{}" }
}

/// An open object with role and content.
fn put_content(out: &mut Vec<u8>, role: &str, content: &str) -> serde_json::Result<()> {
    out.extend_from_slice(b"{\"role\":\"");
    out.extend_from_slice(role.as_bytes());
    out.extend_from_slice(b"\",\"content\":");
    put(out, content)
}

fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    serde_json::to_writer(out, value)
}

fn encode_tools(tools: &[ToolDefinition]) -> serde_json::Result<Vec<u8>> {
    let mut out = vec![b'['];
    for (place, tool) in tools.iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"" } else { b"," });
        out.extend_from_slice(b"{\"type\":\"function\",\"function\":{\"name\":");
        put(&mut out, tool.name.as_str())?;
        out.extend_from_slice(b",\"description\":");
        put(&mut out, tool.description.as_str())?;
        out.extend_from_slice(b",\"parameters\":");
        put(&mut out, &tool.parameters)?;
        // Servers other than OpenAI may not know the field, so it is only sent when it says something.
        out.extend_from_slice(if tool.strict { b",\"strict\":true}}" } else { b"}}" });
    }
    out.push(b']');
    Ok(out)
}

/// Roughly what the body will take, so that the buffer grows at most once or twice.
fn length(request: &ModelRequest) -> usize {
    let of_message = |message: &Message| match message {
        Message::User { content } => content.len(),
        Message::Assistant { content, calls } => content.len() + calls.iter().map(|call| 128 + call.arguments.len()).sum::<usize>(),
        Message::Tool { content, .. } => content.len() + 64,
    };
    512 + request.system.len() + request.messages.iter().map(|message| 64 + of_message(message) * 9 / 8).sum::<usize>()
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
