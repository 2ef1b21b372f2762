//! Decodes one payload of a stream into one event, tolerating deviations of real servers.
//!
//! Unknown events are ignored. A whole response that is sent in place of a stream is decoded as its final event.

use serde_json::Value;
use serde_json::value::RawValue;

use super::item::Item;
use crate::TokenUsage;
use crate::raw::{Raw, is_blank, name, number, object, raw_struct};
use crate::stream_error::StreamError;
use crate::usage::usage;

/// The content of one payload.
#[derive(Debug, PartialEq)]
pub(crate) enum Event {
    /// The response was created.
    Created {
        response_id: Option<String>,
        model: Option<String>,
    },
    Added(ItemRef, Box<Item>),
    Finished(ItemRef, Box<Item>),
    /// Text of a message.
    Text {
        target: ItemRef,
        part: u32,
        refusal: bool,
        piece: Fragment,
    },
    /// An annotation of a message's text, as received.
    Annotation {
        target: ItemRef,
        part: u32,
        annotation: Value,
    },
    /// Arguments of a call.
    Arguments(ItemRef, Fragment),
    /// A new status of an item that the provider runs.
    Progress(ItemRef, String),
    Ended(Box<FinalResponse>),
    Error(StreamError),
    /// An event that is not needed.
    Ignored,
    /// A string could not be decoded; its text is lost.
    Damaged,
}

/// The item that an event refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ItemRef {
    pub(crate) index: Option<u32>,
    pub(crate) item_id: Option<String>,
}

/// A fragment of a string: the next part of it, or the full string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    Delta(String),
    Full(String),
}

/// The response in its final event.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FinalResponse {
    pub(crate) response_id: Option<String>,
    pub(crate) model: Option<String>,
    /// `completed`, `incomplete`, `failed`, or another status.
    pub(crate) status: String,
    /// Why it is incomplete.
    pub(crate) reason: Option<String>,
    pub(crate) failure: Option<StreamError>,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) items: Vec<Item>,
    /// An item could not be decoded.
    pub(crate) damaged: bool,
}

raw_struct! {
    WireEvent {
        kind = "type", item_id, output_index, content_index, delta, text, refusal, arguments, input, code, item,
        response, error, object, output, annotation,
    }
    WireResponse { id, model, status, error, incomplete_details, output, usage }
    WireDetails { reason }
}

/// Decodes one payload. `event_name` is the name of the server-sent event, used if the payload has no type.
pub(crate) fn decode(payload: &str, event_name: Option<&str>) -> Result<Event, serde_json::Error> {
    let wire: WireEvent<'_> = serde_json::from_str(payload)?;
    let error = wire.error.filter(|raw| !is_blank(raw));
    let named = name(wire.kind);
    let Some(kind) = named.as_deref().or(event_name) else {
        let is_response = wire.output.is_some() || wire.object.is_some_and(|raw| raw.get() == "\"response\"");
        return Ok(match error.and_then(|raw| StreamError::read(raw.get(), Some(payload))) {
            // A failed response in one body contains the error itself.
            Some(error) if !is_response => Event::Error(error),
            _ if is_response => ending(payload, ""),
            _ => Event::Ignored,
        });
    };
    if kind == "error" {
        let error = error.map_or_else(|| StreamError::read(payload, None), |raw| StreamError::read(raw.get(), Some(payload)));
        return Ok(error.map_or(Event::Ignored, Event::Error));
    }
    let Some(topic) = kind.strip_prefix("response.") else { return Ok(Event::Ignored) };
    if let Some(response) = wire.response {
        return Ok(match topic {
            "created" | "queued" | "in_progress" => created(response),
            "completed" | "failed" | "incomplete" | "cancelled" => ending(response.get(), topic),
            _ => Event::Ignored,
        });
    }
    Ok(wire.about_item(topic))
}

impl WireEvent<'_> {
    fn about_item(&self, topic: &str) -> Event {
        let target = ItemRef { index: self.output_index.and_then(number), item_id: name(self.item_id) };
        let part = self.content_index.and_then(number).unwrap_or(0);
        match topic {
            "output_item.added" | "output_item.done" => {
                let Some(item) = self.item.and_then(Item::read) else { return Event::Damaged };
                let target = ItemRef { item_id: item.id.clone(), ..target };
                let item = Box::new(item);
                if topic.ends_with("done") { Event::Finished(target, item) } else { Event::Added(target, item) }
            }
            "output_text.delta" | "refusal.delta" => {
                let refusal = topic.starts_with("refusal");
                self.piece(self.delta, Fragment::Delta).map_or(Event::Damaged, |piece| Event::Text { target, part, refusal, piece })
            }
            "output_text.done" | "refusal.done" => {
                let refusal = topic.starts_with("refusal");
                let all = if refusal { self.refusal } else { self.text };
                // A missing full text loses nothing, because the deltas have arrived.
                if all.is_none() {
                    return Event::Ignored;
                }
                self.piece(all, Fragment::Full).map_or(Event::Damaged, |piece| Event::Text { target, part, refusal, piece })
            }
            "output_text.annotation.added" => {
                let annotation = self.annotation.and_then(object::<Value>);
                annotation.map_or(Event::Ignored, |annotation| Event::Annotation { target, part, annotation })
            }
            "function_call_arguments.delta" | "mcp_call_arguments.delta" | "custom_tool_call_input.delta" => {
                self.piece(self.delta, Fragment::Delta).map_or(Event::Damaged, |piece| Event::Arguments(target, piece))
            }
            "function_call_arguments.done" | "mcp_call_arguments.done" | "custom_tool_call_input.done" => {
                match self.arguments.or(self.input).or(self.code) {
                    None => Event::Ignored,
                    all => self.piece(all, Fragment::Full).map_or(Event::Damaged, |piece| Event::Arguments(target, piece)),
                }
            }
            _ => match topic.split_once('.') {
                Some((kind, status)) if kind.ends_with("_call") || kind == "mcp_list_tools" => Event::Progress(target, status.to_owned()),
                _ => Event::Ignored,
            },
        }
    }

    /// A string, or the JSON of an object that is sent in its place. `None` means damage.
    fn piece(&self, raw: Raw<'_>, piece: fn(String) -> Fragment) -> Option<Fragment> {
        let Some(raw) = raw.map(RawValue::get) else { return Some(piece(String::new())) };
        if raw.starts_with('"') { serde_json::from_str(raw).ok().map(piece) } else { Some(piece(raw.to_owned())) }
    }
}

fn created(raw: &RawValue) -> Event {
    object::<WireResponse<'_>>(raw).map_or(Event::Ignored, |wire| Event::Created { response_id: name(wire.id), model: name(wire.model) })
}

/// Decodes a final response. `topic` is the status to use if the response has none.
fn ending(raw: &str, topic: &str) -> Event {
    let Ok(wire) = serde_json::from_str::<WireResponse<'_>>(raw) else { return Event::Damaged };
    let reported = name(wire.status);
    let failed = wire.error.is_some_and(|raw| !is_blank(raw));
    let status = match (topic, reported.as_deref()) {
        // A whole body without a status, or with another server's spelling of it.
        ("", None | Some("complete")) => if failed { "failed" } else { "completed" }.to_owned(),
        ("", Some(reported)) => reported.to_owned(),
        // The event's type is decisive, because the status can lag behind.
        (topic, _) => topic.to_owned(),
    };
    let mut ending = FinalResponse { response_id: name(wire.id), model: name(wire.model), status, ..FinalResponse::default() };
    ending.usage = wire.usage.and_then(usage);
    ending.reason = wire.incomplete_details.and_then(object::<WireDetails<'_>>).and_then(|details| name(details.reason));
    ending.failure = wire.error.filter(|raw| !is_blank(raw)).and_then(|raw| StreamError::read(raw.get(), None));
    let items: Vec<&RawValue> = wire.output.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    for raw in items {
        match Item::read(raw) {
            Some(item) => ending.items.push(item),
            None => ending.damaged = true,
        }
    }
    Event::Ended(Box::new(ending))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
