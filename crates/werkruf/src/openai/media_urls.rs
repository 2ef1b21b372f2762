//! Addresses of pictures and files in the messages of a client. The model's server loads them, so only `https:` and `data:` are passed
//! on: `file:` would read its disk, and other schemes or plain HTTP reach its internal network.

use serde_json::{Map, Value};

/// Fields of content parts that have an address: a text, or an object with the field `url`.
const FIELDS: [&str; 4] = ["image_url", "file_url", "video_url", "audio_url"];

/// The first address in these messages or items that may not be passed on.
pub(crate) fn refused(values: &[Value]) -> Option<&str> {
    values.iter().find_map(in_value)
}

/// Whether a file is only named by its address. Chat Completions has no field for that.
pub(crate) fn has_file_address(values: &[Value]) -> bool {
    has_object(values, |fields| fields.get("file_url").is_some_and(Value::is_string))
}

/// Whether a picture is only named by the id of an uploaded file. Chat Completions has no field for that.
pub(crate) fn has_picture_id(values: &[Value]) -> bool {
    let is_text = |fields: &Map<String, Value>, name: &str| fields.get(name).is_some_and(Value::is_string);
    has_object(values, |fields| {
        fields.get("type").is_some_and(|kind| kind == "input_image") && is_text(fields, "file_id") && !is_text(fields, "image_url")
    })
}

/// Whether an object somewhere in these values has this property.
fn has_object(values: &[Value], property: impl Fn(&Map<String, Value>) -> bool + Copy) -> bool {
    values.iter().any(|value| match value {
        Value::Array(items) => has_object(items, property),
        Value::Object(fields) => property(fields) || fields.values().any(|value| has_object(std::slice::from_ref(value), property)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    })
}

fn in_value(value: &Value) -> Option<&str> {
    match value {
        Value::Array(items) => items.iter().find_map(in_value),
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let address = if FIELDS.contains(&name.as_str()) { value.as_str().or_else(|| value["url"].as_str()) } else { None };
            address.filter(|address| !is_allowed(address)).or_else(|| in_value(value))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn is_allowed(address: &str) -> bool {
    ["https:", "data:"].iter().any(|scheme| address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::refused;

    #[test]
    fn only_https_and_data_are_passed_on() {
        let chat = |url: &str| json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]});
        let item = |url: &str| json!({"type": "function_call_output", "output": [{"type": "input_image", "image_url": url}]});
        let file = |url: &str| json!({"role": "user", "content": [{"type": "input_file", "file_url": url}]});
        for url in ["https://e.org/a.png", "HTTPS://e.org", "data:image/png;base64,AA=="] {
            assert_eq!(refused(&[chat(url), item(url), file(url)]), None, "{url}");
        }
        for url in ["file:///etc/passwd", "http://169.254.169.254/", "ftp://e.org", "/etc/passwd", "", " https://e.org", "ß"] {
            for message in [chat(url), item(url), file(url)] {
                assert_eq!(refused(&[json!({"role": "user", "content": "file:///x"}), message]), Some(url));
            }
        }
    }
}
