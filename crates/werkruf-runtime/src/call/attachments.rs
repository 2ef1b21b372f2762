//! Pictures and files in a tool's data. They are blocks of the Model Context Protocol in the field `content`, whatever kind the tool has:
//! `{type: image, data}` or `{type: resource, resource: {blob}}`. The model gets them beside the data, and the data only names them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Further ones of one result are only named.
const MOST: usize = 16;
const MAX_NAME_CHARS: usize = 200;
const PDF: &str = "application/pdf";

/// A picture or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attachment {
    /// What its first bytes say, whatever the tool says.
    media_type: &'static str,
    /// Its bytes in base64.
    data: String,
    name: String,
}

impl Attachment {
    /// As a content part of Chat Completions.
    fn part(&self) -> Value {
        let address = format!("data:{};base64,{}", self.media_type, self.data);
        if self.media_type == PDF {
            return json!({"type": "file", "file": {"filename": self.name, "file_data": address}});
        }
        json!({"type": "image_url", "image_url": {"url": address}})
    }
}

/// A tool's data without the bytes in it, and the pictures and files among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedData {
    pub data: Value,
    pub(super) attachments: Vec<Attachment>,
}

impl NamedData {
    /// `None` where the data has no such bytes.
    pub fn of(data: &Value) -> Option<Self> {
        let blocks = data.get("content")?.as_array()?;
        if !blocks.iter().any(|block| bytes_of(block).is_some()) {
            return None;
        }
        let mut attachments = Vec::new();
        let named: Vec<Value> = blocks.iter().map(|block| name_bytes(block, &mut attachments)).collect();
        let mut fields = data.as_object()?.clone();
        fields.insert("content".to_owned(), Value::Array(named));
        Some(Self { data: Value::Object(fields), attachments })
    }

    /// The data as text. A model that reads no pictures and files is told so.
    pub(super) fn text(&self, attached: bool) -> String {
        if attached {
            return self.data.to_string();
        }
        let mut data = self.data.clone();
        for block in data["content"].as_array_mut().into_iter().flatten() {
            let holder = if block["type"] == "resource" { &mut block["resource"] } else { block };
            if let Some(attached) = holder.get_mut("attached") {
                *attached = Value::Bool(false);
            }
        }
        data.to_string()
    }

    /// The blocks of the data that have bytes, for another server of the protocol. A picture must be one.
    pub fn blocks(&self, data: &Value) -> Vec<Value> {
        let list = |data: &Value| data["content"].as_array().cloned().unwrap_or_default();
        let mut blocks = Vec::new();
        for (mut block, named) in list(data).into_iter().zip(list(&self.data)) {
            if block == named || (block["type"] == "image" && named["attached"] != true) {
                continue;
            }
            if block["type"] == "image" {
                block["mimeType"] = named["mimeType"].clone();
            }
            blocks.push(block);
        }
        blocks
    }

    /// Finds them in a stored result.
    pub(super) fn of_text(data: &str) -> Option<Self> {
        // Most results have no such field, and searching is cheaper than parsing.
        if data.contains("\"content\"") { Self::of(&serde_json::from_str(data).ok()?) } else { None }
    }

    /// The pictures and files as content parts, behind the text of the result.
    pub(super) fn parts(&self, text: &str) -> Vec<Value> {
        let text = json!({"type": "text", "text": text});
        std::iter::once(text).chain(self.attachments.iter().map(Attachment::part)).collect()
    }
}

/// The object that holds a block's bytes, and the bytes in base64.
fn bytes_of(block: &Value) -> Option<(&Map<String, Value>, &str)> {
    let (holder, field) = match block["type"].as_str()? {
        "image" | "audio" => (block, "data"),
        "resource" => (&block["resource"], "blob"),
        _ => return None,
    };
    Some((holder.as_object()?, holder[field].as_str()?))
}

/// The block with the number of its bytes in place of them.
fn name_bytes(block: &Value, attachments: &mut Vec<Attachment>) -> Value {
    let Some((holder, data)) = bytes_of(block) else { return block.clone() };
    let bytes = STANDARD.decode(data).ok();
    let media_type = bytes.as_deref().and_then(media_type).filter(|_| block["type"] != "audio" && attachments.len() < MOST);
    let mut named = holder.clone();
    named.retain(|field, _| field != "data" && field != "blob");
    named.insert("bytes".to_owned(), bytes.map(|bytes| bytes.len()).into());
    named.insert("attached".to_owned(), media_type.is_some().into());
    if let Some(media_type) = media_type {
        named.insert("mimeType".to_owned(), media_type.into());
        attachments.push(Attachment { media_type, data: data.to_owned(), name: file_name(holder) });
    }
    if block["type"] == "resource" {
        let mut outer = block.clone();
        outer["resource"] = Value::Object(named);
        return outer;
    }
    Value::Object(named)
}

/// The types that models read, by their first bytes.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some(PDF),
        _ => None,
    }
}

/// The last part of a resource's address.
fn file_name(holder: &Map<String, Value>) -> String {
    let path = holder.get("uri").and_then(Value::as_str).unwrap_or_default().split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    let name: String = last.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    if name.is_empty() { "file.pdf".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::{MOST, NamedData};

    fn encoded(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    #[test]
    fn bytes_are_named_and_known_types_are_attached() {
        let (png, pdf, wave) = (encoded(b"\x89PNG\r\n\x1a\n1234"), encoded(b"%PDF-1.7"), encoded(b"RIFF1234WAVE"));
        let data = json!({"count": 2, "content": [
            {"type": "text", "text": "See."},
            // The bytes decide, not the name.
            {"type": "image", "mimeType": "image/svg+xml", "data": png},
            {"type": "resource", "resource": {"uri": "file:///tmp/bill.pdf?x=/y", "mimeType": PDF_NAME, "blob": pdf}},
            {"type": "audio", "mimeType": "audio/wav", "data": wave},
            {"type": "image", "mimeType": "image/png", "data": "not base64!"},
            {"type": "resource_link", "uri": "https://e.org/a", "name": "a"},
        ]});
        let named = NamedData::of(&data).unwrap();
        let expected = json!({"count": 2, "content": [
            {"type": "text", "text": "See."},
            {"type": "image", "mimeType": "image/png", "bytes": 12, "attached": true},
            {"type": "resource", "resource": {"uri": "file:///tmp/bill.pdf?x=/y", "mimeType": PDF_NAME, "bytes": 8, "attached": true}},
            {"type": "audio", "mimeType": "audio/wav", "bytes": 12, "attached": false},
            {"type": "image", "mimeType": "image/png", "bytes": null, "attached": false},
            {"type": "resource_link", "uri": "https://e.org/a", "name": "a"},
        ]});
        assert_eq!(named.data, expected);
        let parts = json!([{"type": "text", "text": "shown"},
            {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{png}")}},
            {"type": "file", "file": {"filename": "bill.pdf", "file_data": format!("data:application/pdf;base64,{pdf}")}}]);
        assert_eq!(Value::from(named.parts("shown")), parts);
        let blocks = json!([{"type": "image", "mimeType": "image/png", "data": png}, data["content"][2], data["content"][3]]);
        assert_eq!(Value::from(named.blocks(&data)), blocks, "all bytes but those that are no picture");
        assert_eq!(NamedData::of_text(&data.to_string()), Some(named));
    }

    const PDF_NAME: &str = "application/pdf";

    #[test]
    fn other_data_stays_as_it_is_and_the_number_is_bounded() {
        for data in [json!(null), json!([1]), json!({"content": "text"}), json!({"content": [{"type": "text", "text": "x"}, 7, null]})] {
            assert_eq!(NamedData::of(&data), None);
            assert_eq!(NamedData::of_text(&data.to_string()), None);
        }
        let picture = json!({"type": "image", "data": encoded(b"GIF89a")});
        let named = NamedData::of(&json!({"content": vec![picture; MOST + 1]})).unwrap();
        assert_eq!((named.attachments.len(), &named.data["content"][MOST]["attached"]), (MOST, &json!(false)));
    }
}
