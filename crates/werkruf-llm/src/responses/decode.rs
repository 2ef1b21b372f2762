//! One payload of a stream to what it says, forgiving what real servers do.
//!
//! Unknown events say nothing. A whole response in place of a stream is read as its own end.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::item::Item;
use crate::TokenUsage;
use crate::raw::{Raw, is_blank, name, number, object};
use crate::refusal::StreamError;
use crate::usage::usage;

/// What one payload says.
#[derive(Debug, PartialEq)]
pub(crate) enum Event {
    /// The response began; who answers.
    Begun {
        response_id: Option<String>,
        model: Option<String>,
    },
    Added(Place, Box<Item>),
    Finished(Place, Box<Item>),
    /// A piece of a message.
    Said {
        place: Place,
        part: u32,
        refusal: bool,
        piece: Piece,
    },
    /// A piece of what a call is asked.
    Arguments(Place, Piece),
    /// The provider's own work goes on.
    Progress(Place, String),
    Ended(Box<Ending>),
    Error(StreamError),
    /// Something this side has no use for.
    Nothing,
    /// A string could not be read; what it said is lost.
    Damaged,
}

/// Which item an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) index: Option<u32>,
    pub(crate) item_id: Option<String>,
}

/// A piece of a string: the next bit of it, or all of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    More(String),
    All(String),
}

/// The response at its end.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ending {
    pub(crate) response_id: Option<String>,
    pub(crate) model: Option<String>,
    /// `completed`, `incomplete`, `failed`, or any other word.
    pub(crate) status: String,
    /// Why it is incomplete.
    pub(crate) reason: Option<String>,
    pub(crate) failure: Option<StreamError>,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) items: Vec<Item>,
    /// An item that could not be read.
    pub(crate) damaged: bool,
}

#[derive(Deserialize)]
struct WireEvent<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    item_id: Raw<'a>,
    #[serde(borrow, default)]
    output_index: Raw<'a>,
    #[serde(borrow, default)]
    content_index: Raw<'a>,
    #[serde(borrow, default)]
    delta: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
    #[serde(borrow, default)]
    input: Raw<'a>,
    #[serde(borrow, default)]
    code: Raw<'a>,
    #[serde(borrow, default)]
    item: Raw<'a>,
    #[serde(borrow, default)]
    response: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    object: Raw<'a>,
    #[serde(borrow, default)]
    output: Raw<'a>,
}

#[derive(Deserialize)]
struct WireResponse<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
    #[serde(borrow, default)]
    status: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    incomplete_details: Raw<'a>,
    #[serde(borrow, default)]
    output: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
}

#[derive(Deserialize)]
struct WireDetails<'a> {
    #[serde(borrow, default)]
    reason: Raw<'a>,
}

/// Reads one payload. `event_name` is the stream's own word for it, used where the payload has none.
pub(crate) fn decode(payload: &str, event_name: Option<&str>) -> Result<Event, serde_json::Error> {
    let wire: WireEvent<'_> = serde_json::from_str(payload)?;
    let error = wire.error.filter(|raw| !is_blank(raw));
    let named = name(wire.kind);
    let Some(kind) = named.as_deref().or(event_name) else {
        let is_response = wire.output.is_some() || wire.object.is_some_and(|raw| raw.get() == "\"response\"");
        return Ok(match error.and_then(|raw| StreamError::read(raw.get(), Some(payload))) {
            // A failed response in one body holds its error itself.
            Some(error) if !is_response => Event::Error(error),
            _ if is_response => ending(payload, ""),
            _ => Event::Nothing,
        });
    };
    if kind == "error" {
        let error = error.map_or_else(|| StreamError::read(payload, None), |raw| StreamError::read(raw.get(), Some(payload)));
        return Ok(error.map_or(Event::Nothing, Event::Error));
    }
    let Some(topic) = kind.strip_prefix("response.") else { return Ok(Event::Nothing) };
    if let Some(response) = wire.response {
        return Ok(match topic {
            "created" | "queued" | "in_progress" => begun(response),
            "completed" | "failed" | "incomplete" | "cancelled" => ending(response.get(), topic),
            _ => Event::Nothing,
        });
    }
    Ok(wire.about_item(topic))
}

impl WireEvent<'_> {
    fn about_item(&self, topic: &str) -> Event {
        let place = Place { index: self.output_index.and_then(number), item_id: name(self.item_id) };
        let part = self.content_index.and_then(number).unwrap_or(0);
        match topic {
            "output_item.added" | "output_item.done" => {
                let Some(item) = self.item.and_then(Item::read) else { return Event::Damaged };
                let place = Place { item_id: item.id.clone(), ..place };
                let item = Box::new(item);
                if topic.ends_with("done") { Event::Finished(place, item) } else { Event::Added(place, item) }
            }
            "output_text.delta" | "refusal.delta" => {
                let refusal = topic.starts_with("refusal");
                self.piece(self.delta, Piece::More).map_or(Event::Damaged, |piece| Event::Said { place, part, refusal, piece })
            }
            "output_text.done" | "refusal.done" => {
                let refusal = topic.starts_with("refusal");
                let all = if refusal { self.refusal } else { self.text };
                // Nothing is lost when the whole text is missing: the pieces were there.
                if all.is_none() {
                    return Event::Nothing;
                }
                self.piece(all, Piece::All).map_or(Event::Damaged, |piece| Event::Said { place, part, refusal, piece })
            }
            "function_call_arguments.delta" | "mcp_call_arguments.delta" | "custom_tool_call_input.delta" => {
                self.piece(self.delta, Piece::More).map_or(Event::Damaged, |piece| Event::Arguments(place, piece))
            }
            "function_call_arguments.done" | "mcp_call_arguments.done" | "custom_tool_call_input.done" => {
                match self.arguments.or(self.input).or(self.code) {
                    None => Event::Nothing,
                    all => self.piece(all, Piece::All).map_or(Event::Damaged, |piece| Event::Arguments(place, piece)),
                }
            }
            _ => match topic.split_once('.') {
                Some((kind, status)) if kind.ends_with("_call") || kind == "mcp_list_tools" => Event::Progress(place, status.to_owned()),
                _ => Event::Nothing,
            },
        }
    }

    /// A string, or an object in its place. `None` is damage.
    fn piece(&self, raw: Raw<'_>, piece: fn(String) -> Piece) -> Option<Piece> {
        let Some(raw) = raw.map(RawValue::get) else { return Some(piece(String::new())) };
        if raw.starts_with('"') { serde_json::from_str(raw).ok().map(piece) } else { Some(piece(raw.to_owned())) }
    }
}

fn begun(raw: &RawValue) -> Event {
    object::<WireResponse<'_>>(raw).map_or(Event::Nothing, |wire| Event::Begun { response_id: name(wire.id), model: name(wire.model) })
}

/// A response as it ended. `topic` says how where the response itself does not.
fn ending(raw: &str, topic: &str) -> Event {
    let Ok(wire) = serde_json::from_str::<WireResponse<'_>>(raw) else { return Event::Damaged };
    let said = name(wire.status);
    let failed = wire.error.is_some_and(|raw| !is_blank(raw));
    let status = match (topic, said.as_deref()) {
        // A whole body that says nothing of itself, or says it in another server's word.
        ("", None | Some("complete")) => if failed { "failed" } else { "completed" }.to_owned(),
        ("", Some(said)) => said.to_owned(),
        // The event is the end, whatever a lagging status says.
        (topic, _) => topic.to_owned(),
    };
    let mut ending = Ending { response_id: name(wire.id), model: name(wire.model), status, ..Ending::default() };
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
