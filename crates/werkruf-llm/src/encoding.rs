//! Request encoding that both APIs share.
//!
//! A body is written directly into one buffer without building a JSON tree, because a history of hundreds of messages is encoded
//! on every step. Tool definitions rarely change, so their encoding is cached by the identity of the shared list.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::{Message, ModelRequest, ToolChoice, ToolDefinition};

type EncodeTools = fn(&[ToolDefinition]) -> serde_json::Result<Vec<u8>>;

/// Encoded tool lists, the latest last. An entry keeps its list alive, so the list's address is not reused for another list.
#[derive(Debug)]
pub(crate) struct ToolCache {
    encode: EncodeTools,
    cached: Mutex<Vec<CachedList>>,
}

#[derive(Debug)]
struct CachedList {
    list: Arc<Vec<ToolDefinition>>,
    bytes: Arc<[u8]>,
}

/// The number of cached lists: about one per assistant in use.
const MAX_CACHED_LISTS: usize = 16;

impl ToolCache {
    /// A cache that uses the API's tool encoding.
    pub(crate) const fn new(encode: EncodeTools) -> Self {
        Self { encode, cached: Mutex::new(Vec::new()) }
    }

    /// The encoded tools of a request; `None` if the request offers no tools.
    pub(crate) fn offered(&self, request: &ModelRequest) -> serde_json::Result<Option<Arc<[u8]>>> {
        if request.tool_choice == ToolChoice::None || request.tools.is_empty() {
            return Ok(None);
        }
        self.encoded(&request.tools).map(Some)
    }

    fn encoded(&self, tools: &Arc<Vec<ToolDefinition>>) -> serde_json::Result<Arc<[u8]>> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cached.iter().find(|known| Arc::ptr_eq(&known.list, tools)) {
            return Ok(Arc::clone(&known.bytes));
        }
        let bytes: Arc<[u8]> = (self.encode)(tools)?.into();
        if cached.len() == MAX_CACHED_LISTS {
            cached.remove(0);
        }
        cached.push(CachedList { list: Arc::clone(tools), bytes: Arc::clone(&bytes) });
        Ok(bytes)
    }
}

/// The model name without the vendor prefix that routers put before it.
fn family(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// Reasoning models use another name for the token limit and reject a temperature.
pub(crate) fn is_reasoning_model(model: &str) -> bool {
    ["gpt-5", "o1", "o3", "o4", "codex"].iter().any(|known| family(model).starts_with(known))
}

/// Models that reject the `parallel_tool_calls` option.
pub(crate) fn decides_parallel_itself(model: &str) -> bool {
    ["o1", "o3", "o4"].iter().any(|known| family(model).starts_with(known))
}

/// A tool name that providers accept. A model may invent any name, but providers reject a history that contains an invalid one.
pub(crate) fn valid_name(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let name: String = name.chars().take(64).map(|c| if fits(c) { c } else { '_' }).collect();
    Cow::Owned(if name.is_empty() { "unknown".to_owned() } else { name })
}

/// Arguments that providers accept. Some servers reject the whole conversation if arguments are not a JSON object; the result of
/// such a call describes the error.
pub(crate) fn valid_arguments(arguments: &str) -> &str {
    let object = arguments.trim_start().starts_with('{') && serde_json::from_str::<&serde_json::value::RawValue>(arguments).is_ok();
    if object { arguments } else { "{}" }
}

/// Writes a value as JSON.
pub(crate) fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    serde_json::to_writer(out, value)
}

/// Writes another field of an open object: a comma, the name, which must need no escapes, and the value.
pub(crate) fn put_field<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) -> serde_json::Result<()> {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    put(out, value)
}

/// Writes the tool choice; the API's format of a named tool is these bytes before and after the name.
pub(crate) fn put_choice(out: &mut Vec<u8>, choice: &ToolChoice, before: &[u8], after: &[u8]) -> serde_json::Result<()> {
    match choice {
        ToolChoice::Auto | ToolChoice::None => put_field(out, "tool_choice", "auto"),
        ToolChoice::Required => put_field(out, "tool_choice", "required"),
        ToolChoice::Named(name) => {
            out.extend_from_slice(b",\"tool_choice\":");
            out.extend_from_slice(before);
            put(out, name)?;
            out.extend_from_slice(after);
            Ok(())
        }
    }
}

/// The beginning of a body: an open object with the model. It has room for the rest, with these encoded tools.
pub(crate) fn open_body(request: &ModelRequest, model: &str, tools: Option<&[u8]>) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(estimated_length(request) + tools.map_or(0, <[u8]>::len));
    out.extend_from_slice(b"{\"model\":");
    put(&mut out, model)?;
    Ok(out)
}

/// An estimate of the body's length, so that the buffer grows at most once or twice.
fn estimated_length(request: &ModelRequest) -> usize {
    let of_message = |message: &Message| match message {
        Message::System { content } | Message::User { content, .. } => content.len(),
        Message::Assistant { content, calls, .. } => content.len() + calls.iter().map(|call| 128 + call.arguments.len()).sum::<usize>(),
        Message::Tool { content, .. } => content.len() + 64,
    };
    512 + request.system.len() + request.messages.iter().map(|message| 64 + of_message(message) * 9 / 8).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_tools_are_cached_by_identity_up_to_a_limit() {
        let list = || {
            Arc::new(vec![ToolDefinition {
                name: "f".into(),
                description: String::new(),
                parameters: true.into(),
                strict: true,
                texts: None,
            }])
        };
        let (cache, first) = (ToolCache::new(|_| Ok(vec![1])), list());
        let bytes = cache.encoded(&first).unwrap();
        assert!(Arc::ptr_eq(&bytes, &cache.encoded(&Arc::clone(&first)).unwrap()));
        for _ in 0..MAX_CACHED_LISTS {
            cache.encoded(&list()).unwrap();
        }
        assert!(!Arc::ptr_eq(&bytes, &cache.encoded(&first).unwrap()), "the oldest list was removed");
    }

    #[test]
    fn names_and_arguments_become_valid() {
        assert_eq!(valid_name("get_todos-2"), "get_todos-2");
        assert_eq!(valid_name("größe.x"), "gr__e_x");
        assert_eq!(valid_name(""), "unknown");
        assert_eq!(valid_name(&"a".repeat(70)).len(), 64);
        for (arguments, expected) in [("{\"a\":1}", "{\"a\":1}"), ("{\"a\":", "{}"), ("[1]", "{}"), ("", "{}"), ("\"x\"", "{}")] {
            assert_eq!(valid_arguments(arguments), expected);
        }
    }
}
