//! Parses the server's event stream. Unlike a model's stream, its events have numbers from which a client can resume.

use serde_json::{Value, json};

/// One event of the server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServerEvent {
    /// The event's number in the conversation; tokens have none.
    pub(super) id: Option<i64>,
    pub(super) event: String,
    pub(super) data: Value,
}

impl ServerEvent {
    /// The event as `--json` prints it.
    pub(super) fn line(&self) -> String {
        json!({"id": self.id, "event": self.event, "data": self.data}).to_string()
    }

    pub(super) fn ends_turn(&self) -> bool {
        matches!(self.event.as_str(), "final" | "error")
    }
}

/// An incremental parser; the input may be split at any byte.
#[derive(Debug, Default)]
pub(super) struct Frames {
    line: Vec<u8>,
    id: Option<i64>,
    event: String,
    data: String,
}

impl Frames {
    /// Adds bytes and returns the events that they complete.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Vec<ServerEvent> {
        let mut events = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            events.extend(self.end_line());
        }
        self.line.extend_from_slice(bytes);
        events
    }

    fn end_line(&mut self) -> Option<ServerEvent> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            let done = std::mem::take(self);
            // A frame without a name is a hint to the client (`retry:`). Frames without JSON are not events of this server.
            let data = serde_json::from_str(&done.data).ok()?;
            return (!done.event.is_empty()).then_some(ServerEvent { id: done.id, event: done.event, data });
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
    fn events_do_not_depend_on_where_the_bytes_are_split() {
        let bytes = "retry: 1000\n\n: keep-alive\n\nid: 3\nevent: init\ndata: {\"a\":\ndata: \"ö\"}\n\nevent: assistant_token\r\ndata: {}\r\n\r\nevent: final\ndata: {".as_bytes();
        let whole = Frames::default().push(bytes);
        let expected = [
            ServerEvent { id: Some(3), event: "init".to_owned(), data: json!({"a": "ö"}) },
            ServerEvent { id: None, event: "assistant_token".to_owned(), data: json!({}) },
        ];
        assert_eq!(whole, expected, "and an incomplete event is not returned");
        let mut frames = Frames::default();
        let pieces: Vec<ServerEvent> = bytes.iter().flat_map(|byte| frames.push(&[*byte])).collect();
        assert_eq!(pieces, whole);
    }
}
