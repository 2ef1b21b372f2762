//! Access to fields of provider payloads.

use serde_json::Value;

/// A text field.
pub(super) fn text<'a>(of: &'a Value, field: &str) -> Option<&'a str> {
    of.get(field).and_then(Value::as_str)
}
