//! The server's events, from bytes. Unlike a model's stream these have numbers, by which a client goes on.

use serde_json::{Value, json};

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Heard {
    /// Its number in the conversation; tokens have none.
    pub(super) id: Option<i64>,
    pub(super) event: String,
    pub(super) data: Value,
}

impl Heard {
    /// As `--json` prints it.
    pub(super) fn line(&self) -> String {
        json!({"id": self.id, "event": self.event, "data": self.data}).to_string()
    }

    pub(super) fn ends_turn(&self) -> bool {
        matches!(self.event.as_str(), "final" | "error")
    }
}

/// Bytes as they come, cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Frames {
    line: Vec<u8>,
    id: Option<i64>,
    event: String,
    data: String,
}

impl Frames {
    /// The events these bytes complete.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            heard.extend(self.end_line());
        }
        self.line.extend_from_slice(bytes);
        heard
    }

    fn end_line(&mut self) -> Option<Heard> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            let done = std::mem::take(self);
            // Without a name it was a hint to the client (`retry:`), and what is no JSON is no event of ours.
            let data = serde_json::from_str(&done.data).ok()?;
            return (!done.event.is_empty()).then_some(Heard { id: done.id, event: done.event, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = value.parse().ok(),
            "event" => value.clone_into(&mut self.event),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_changes_nothing() {
        let bytes = "retry: 1000\n\n: keep-alive\n\nid: 3\nevent: init\ndata: {\"a\":\ndata: \"ö\"}\n\nevent: assistant_token\r\ndata: {}\r\n\r\nevent: final\ndata: {".as_bytes();
        let whole = Frames::default().push(bytes);
        let expected = [
            Heard { id: Some(3), event: "init".to_owned(), data: json!({"a": "ö"}) },
            Heard { id: None, event: "assistant_token".to_owned(), data: json!({}) },
        ];
        assert_eq!(whole, expected, "and half an event is none");
        let mut frames = Frames::default();
        let pieces: Vec<Heard> = bytes.iter().flat_map(|byte| frames.push(&[*byte])).collect();
        assert_eq!(pieces, whole);
    }
}
