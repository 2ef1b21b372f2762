//! What both APIs share on the way out.
//!
//! A body is written straight into one buffer: a history of hundreds of messages is encoded on every step, and no tree of it
//! is needed. Tool definitions hardly ever change, so their encoding is kept by the identity of the shared list.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::{Message, ModelRequest, ToolChoice, ToolDefinition};

type EncodeTools = fn(&[ToolDefinition]) -> serde_json::Result<Vec<u8>>;

/// Encoded tool lists, the latest last. An entry keeps its list alive, so an address never means another list.
#[derive(Debug)]
pub(crate) struct ToolCache {
    encode: EncodeTools,
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
    /// With this API's shape of a tool.
    pub(crate) const fn new(encode: EncodeTools) -> Self {
        Self { encode, kept: Mutex::new(Vec::new()) }
    }

    /// The tools a request offers, encoded; `None` when it offers none.
    pub(crate) fn offered(&self, request: &ModelRequest) -> serde_json::Result<Option<Arc<[u8]>>> {
        if request.tool_choice == ToolChoice::None || request.tools.is_empty() {
            return Ok(None);
        }
        self.encoded(&request.tools).map(Some)
    }

    fn encoded(&self, tools: &Arc<Vec<ToolDefinition>>) -> serde_json::Result<Arc<[u8]>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| Arc::ptr_eq(&known.list, tools)) {
            return Ok(Arc::clone(&known.bytes));
        }
        let bytes: Arc<[u8]> = (self.encode)(tools)?.into();
        if kept.len() == KEPT_LISTS {
            kept.remove(0);
        }
        kept.push(KeptList { list: Arc::clone(tools), bytes: Arc::clone(&bytes) });
        Ok(bytes)
    }
}

/// The family name of a model; routers put the maker's name before it.
fn family(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// Models that think before they speak: another name for the limit, and no temperature.
pub(crate) fn is_reasoning_model(model: &str) -> bool {
    ["gpt-5", "o1", "o3", "o4", "codex"].iter().any(|known| family(model).starts_with(known))
}

/// Models that refuse to be told whether they may call in parallel.
pub(crate) fn decides_parallel_itself(model: &str) -> bool {
    ["o1", "o3", "o4"].iter().any(|known| family(model).starts_with(known))
}

/// A model may make up any name, but a provider refuses a history with one it would not have given.
pub(crate) fn speakable(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let name: String = name.chars().take(64).map(|c| if fits(c) { c } else { '_' }).collect();
    Cow::Owned(if name.is_empty() { "unknown".to_owned() } else { name })
}

/// Arguments that are no JSON object make some servers refuse the whole conversation; the call's result says what was wrong.
pub(crate) fn whole(arguments: &str) -> &str {
    let object = arguments.trim_start().starts_with('{') && serde_json::from_str::<&serde_json::value::RawValue>(arguments).is_ok();
    if object { arguments } else { "{}" }
}

/// A value as JSON.
pub(crate) fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    serde_json::to_writer(out, value)
}

/// Another field of an open object: a comma, the name, which needs no escapes, and the value.
pub(crate) fn put_field<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) -> serde_json::Result<()> {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    put(out, value)
}

/// Roughly what the body will take, so that the buffer grows at most once or twice.
pub(crate) fn length(request: &ModelRequest) -> usize {
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
    fn encoded_tools_are_kept_by_identity_and_not_for_ever() {
        let list =
            || Arc::new(vec![ToolDefinition { name: "f".into(), description: String::new(), parameters: true.into(), strict: true }]);
        let (cache, first) = (ToolCache::new(|_| Ok(vec![1])), list());
        let bytes = cache.encoded(&first).unwrap();
        assert!(Arc::ptr_eq(&bytes, &cache.encoded(&Arc::clone(&first)).unwrap()));
        for _ in 0..KEPT_LISTS {
            cache.encoded(&list()).unwrap();
        }
        assert!(!Arc::ptr_eq(&bytes, &cache.encoded(&first).unwrap()), "the oldest list was let go");
    }

    #[test]
    fn what_a_provider_would_refuse_is_made_speakable() {
        assert_eq!(speakable("get_todos-2"), "get_todos-2");
        assert_eq!(speakable("größe.x"), "gr__e_x");
        assert_eq!(speakable(""), "unknown");
        assert_eq!(speakable(&"a".repeat(70)).len(), 64);
        for (arguments, said) in [("{\"a\":1}", "{\"a\":1}"), ("{\"a\":", "{}"), ("[1]", "{}"), ("", "{}"), ("\"x\"", "{}")] {
            assert_eq!(whole(arguments), said);
        }
    }
}
