//! Tolerant JSON reading: a field is read as raw JSON first, and parsed only if it has the expected type.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A field as sent; `None` if it is absent or null.
pub(crate) type Raw<'a> = Option<&'a RawValue>;

/// Declares structs whose fields are all [`Raw`]. A field may name its key on the wire.
macro_rules! raw_struct {
    ($($(#[$note:meta])* $name:ident { $($(#[$field_note:meta])* $field:ident $(= $key:literal)?),+ $(,)? })+) => {
        $($(#[$note])*
        #[derive(serde::Deserialize)]
        struct $name<'a> {
            $($(#[$field_note])* #[serde(borrow, default $(, rename = $key)?)] $field: $crate::raw::Raw<'a>,)+
        })+
    };
}
pub(crate) use raw_struct;

/// The elements of a list, or a single object that is sent in place of a list.
pub(crate) fn list<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Vec<T> {
    if raw.get().starts_with('{') {
        return object(raw).into_iter().collect();
    }
    let elements: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    elements.into_iter().filter_map(object).collect()
}

/// An object of this type.
pub(crate) fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    // Derived deserializers also accept a list of field values, which would be a guess.
    if raw.get().starts_with('{') { serde_json::from_str(raw.get()).ok() } else { None }
}

/// A short string or a number as text, unless empty.
pub(crate) fn name(raw: Raw<'_>) -> Option<String> {
    let raw = raw?.get();
    let text = match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok()?,
        b'0'..=b'9' => raw.to_owned(),
        _ => return None,
    };
    Some(text).filter(|text: &String| !text.is_empty())
}

/// A whole number, also if sent as a string.
pub(crate) fn number(raw: &RawValue) -> Option<u32> {
    raw.get().trim_matches('"').parse().ok()
}

/// Whether a value is empty, of any type.
pub(crate) fn is_blank(raw: &RawValue) -> bool {
    matches!(raw.get(), "\"\"" | "{}" | "[]" | "false")
}

/// A token count as a whole number; some servers send `12.0`.
pub(crate) fn count(tokens: Option<f64>) -> i64 {
    // A cast from float to integer saturates, so no value from a server can overflow.
    tokens.filter(|tokens| *tokens > 0.0).map_or(0, |tokens| tokens.min(1e15) as i64)
}
