//! Reads the payloads of Meta's webhook: batches of messages, delivery reports and errors.
//!
//! Unknown fields and types are tolerated, because Meta adds some without notice. An item without an id is left out: it could not be
//! recognised when it comes again.

use serde::Serialize;
use serde_json::Value;
use werkruf_contract::{MAX_JSON_VALUES, count_json_values};

/// The most events of one payload. Meta sends at most a thousand in one.
const MAX_EVENTS: usize = 10_000;
/// The longest id, phone number or name that is kept. Meta's are far shorter.
const MAX_NAME: usize = 512;
/// The types of messages with a file.
const MEDIA: [&str; 5] = ["image", "audio", "video", "document", "sticker"];

/// One item of a payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Message(MessageEvent),
    Status(StatusEvent),
    Error(ErrorEvent),
}

/// A message of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageEvent {
    pub id: String,
    /// As Meta names it; `interactive/button_reply`, `interactive/list_reply` for replies.
    #[serde(rename = "type")]
    pub kind: String,
    /// The sender's `wa_id`: digits. Absent if the sender hides it.
    pub from_phone: Option<String>,
    /// The sender's business-scoped id.
    pub from_user_id: Option<String>,
    pub name: Option<String>,
    /// The number that received the message.
    pub phone_number_id: String,
    pub timestamp: Option<i64>,
    /// What the person wrote: a text, the caption of a file, the title of the chosen button or row.
    pub text: Option<String>,
    /// The id of the chosen button or row.
    pub reply_id: Option<String>,
    /// The id of the message that this one answers.
    pub in_reply_to: Option<String>,
    pub media_id: Option<String>,
    pub errors: Option<Vec<i64>>,
    /// The group of the message; `None` for a message to the number itself.
    #[serde(skip)]
    pub group_id: Option<String>,
}

/// A delivery report about a message that this server sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatusEvent {
    pub id: String,
    /// `sent`, `delivered`, `read`, `failed`, or another one.
    pub status: String,
    pub recipient: Option<String>,
    pub timestamp: Option<i64>,
    pub errors: Option<Vec<i64>>,
    #[serde(skip)]
    pub phone_number_id: String,
    /// What this server sent as `biz_opaque_callback_data`.
    #[serde(skip)]
    pub callback_data: Option<String>,
    /// The text of the first error.
    #[serde(skip)]
    pub message: Option<String>,
}

/// An error of the number or of the account that belongs to no message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorEvent {
    pub phone_number_id: String,
    pub code: Option<i64>,
    pub title: Option<String>,
}

/// Why a body is not a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadFault {
    #[error("is not JSON: {0}")]
    NotJson(String),
    #[error("is not a webhook payload of WhatsApp")]
    NotWhatsApp,
    #[error("has more than {MAX_EVENTS} events or {MAX_JSON_VALUES} values")]
    TooMany,
}

/// All events of a payload, in order.
pub fn parse(raw: &[u8]) -> Result<Vec<Event>, PayloadFault> {
    if count_json_values(raw) > MAX_JSON_VALUES {
        return Err(PayloadFault::TooMany);
    }
    let not_json = |error: serde_json::Error| PayloadFault::NotJson(error.to_string());
    let payload: Value = serde_json::from_slice(raw)
        .or_else(|error| whole_characters(raw).map_or(Err(error), |mended| serde_json::from_slice(&mended)))
        .map_err(not_json)?;
    let Some(entries) = payload.get("entry").and_then(Value::as_array) else { return Err(PayloadFault::NotWhatsApp) };
    let mut events = Vec::new();
    for value in entries.iter().flat_map(|entry| list(entry, "changes")).filter_map(|change| change.get("value")) {
        read_change(value, &mut events);
        if events.len() > MAX_EVENTS {
            return Err(PayloadFault::TooMany);
        }
    }
    Ok(events)
}

/// The JSON with U+FFFD for each escaped half of a character; `None` if it has none. A text that somebody cut may end in such a half,
/// and one text must not keep a whole batch away.
fn whole_characters(raw: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let digits = raw.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut out, mut at, mut changed) = (Vec::with_capacity(raw.len()), 0, false);
    while at < raw.len() {
        let length = match (unit(at), unit(at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                out.extend_from_slice(b"\\ufffd");
                (at, changed) = (at + 6, true);
                continue;
            }
            // An escaped backslash begins no other escape.
            _ if raw[at] == b'\\' => 2.min(raw.len() - at),
            _ => 1,
        };
        out.extend_from_slice(&raw[at..at + length]);
        at += length;
    }
    changed.then_some(out)
}

fn read_change(value: &Value, events: &mut Vec<Event>) {
    let Some(number) = name(value.pointer("/metadata/phone_number_id")) else { return };
    let contacts = list(value, "contacts");
    events.extend(list(value, "messages").iter().filter_map(|item| message(item, &number, contacts)).map(Event::Message));
    events.extend(list(value, "statuses").iter().filter_map(|item| status(item, &number)).map(Event::Status));
    events.extend(list(value, "errors").iter().filter(|item| item.is_object()).map(|item| {
        let title = name(item.get("title")).or_else(|| name(item.get("message")));
        Event::Error(ErrorEvent { phone_number_id: number.clone(), code: whole(item.get("code")), title })
    }));
}

fn message(item: &Value, number: &str, contacts: &[Value]) -> Option<MessageEvent> {
    let id = name(item.get("id"))?;
    let kind = name(item.get("type"))?;
    let from = name(item.get("from"));
    let (phone, scoped) = match from {
        Some(from) if is_phone(&from) => (Some(from), None),
        other => (None, other),
    };
    let scoped = name(item.get("from_user_id")).or(scoped);
    let contact = contact(contacts, phone.as_deref(), scoped.as_deref());
    let of_contact = |field: &str| contact.and_then(|contact| name(contact.get(field)));
    let content = item.get(kind.as_str());
    let (kind, text, reply_id) = said(kind, content);
    Some(MessageEvent {
        from_phone: phone.or_else(|| of_contact("wa_id").filter(|phone| is_phone(phone))),
        from_user_id: scoped.or_else(|| of_contact("user_id")),
        name: contact.and_then(|contact| name(contact.pointer("/profile/name"))),
        phone_number_id: number.to_owned(),
        timestamp: whole(item.get("timestamp")),
        text: text.filter(|text| !text.trim().is_empty()),
        reply_id,
        in_reply_to: name(item.pointer("/context/id")),
        media_id: content.filter(|_| MEDIA.contains(&kind.as_str())).and_then(|content| name(content.get("id"))),
        errors: codes(item),
        group_id: name(item.get("group_id")),
        id,
        kind,
    })
}

/// The type with its subtype, what the person wrote, and the id of what they chose.
fn said(kind: String, content: Option<&Value>) -> (String, Option<String>, Option<String>) {
    let text = |place: &str| content.and_then(|content| content.pointer(place)).and_then(Value::as_str).map(storable);
    match kind.as_str() {
        "text" => (kind, text("/body"), None),
        "button" => (kind, text("/text"), text("/payload")),
        "interactive" => match text("/type").filter(|kind| kind.len() <= MAX_NAME) {
            Some(reply) => (format!("interactive/{reply}"), text(&format!("/{reply}/title")), text(&format!("/{reply}/id"))),
            None => (kind, None, None),
        },
        media if MEDIA.contains(&media) => (kind, text("/caption"), None),
        _ => (kind, None, None),
    }
}

/// The contact who sent a message. A batch has several, so that only an equal address counts; a message without an address belongs to the
/// only contact.
fn contact<'a>(contacts: &'a [Value], phone: Option<&str>, scoped: Option<&str>) -> Option<&'a Value> {
    let has = |contact: &Value, field: &str, wanted: Option<&str>| wanted.is_some() && contact.get(field).and_then(Value::as_str) == wanted;
    match (contacts, phone, scoped) {
        ([only], None, None) => Some(only),
        (all, _, _) => all.iter().find(|contact| has(contact, "user_id", scoped) || has(contact, "wa_id", phone)),
    }
}

fn status(item: &Value, number: &str) -> Option<StatusEvent> {
    let first = list(item, "errors").first();
    let details = first.and_then(|error| error.pointer("/error_data/details")).or_else(|| first.and_then(|error| error.get("title")));
    Some(StatusEvent {
        id: name(item.get("id"))?,
        status: name(item.get("status"))?,
        recipient: name(item.get("recipient_id")).or_else(|| name(item.get("recipient_user_id"))),
        timestamp: whole(item.get("timestamp")),
        errors: codes(item),
        phone_number_id: number.to_owned(),
        callback_data: name(item.get("biz_opaque_callback_data")),
        message: name(details),
    })
}

fn codes(item: &Value) -> Option<Vec<i64>> {
    let codes: Vec<i64> = list(item, "errors").iter().filter_map(|error| whole(error.get("code"))).collect();
    (!codes.is_empty()).then_some(codes)
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A short text that is not empty.
fn name(value: Option<&Value>) -> Option<String> {
    let text = storable(value?.as_str()?);
    (!text.trim().is_empty() && text.len() <= MAX_NAME).then_some(text)
}

/// The text without NUL, which PostgreSQL cannot store.
fn storable(text: &str) -> String {
    text.replace('\0', "")
}

/// A whole number, which Meta writes as a number or as a text.
fn whole(value: Option<&Value>) -> Option<i64> {
    let value = value?;
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// Whether this is a `wa_id`: only digits. A business-scoped id begins with a country and a dot.
pub(crate) fn is_phone(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A property for any input: what is read is bounded and stable, and an unknown field changes nothing.
pub fn whatsapp_payload(input: &[u8]) -> bool {
    let Ok(events) = parse(input) else { return false };
    assert!(events.len() <= MAX_EVENTS);
    for event in &events {
        let (id, number) = match event {
            Event::Message(message) => (message.id.as_str(), &message.phone_number_id),
            Event::Status(status) => (status.id.as_str(), &status.phone_number_id),
            Event::Error(error) => ("error", &error.phone_number_id),
        };
        assert!(!id.is_empty() && id.len() <= MAX_NAME && !number.is_empty());
    }
    if let Ok(Value::Object(mut payload)) = serde_json::from_slice(input) {
        payload.insert("unknown".to_owned(), Value::from(vec![1]));
        assert_eq!(parse(Value::Object(payload).to_string().as_bytes()).ok(), Some(events));
    }
    true
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
