//! Decodes bytes into server-sent events.
//!
//! The same bytes give the same events whatever the chunk sizes: a line is decoded only when it is complete, so neither a
//! character nor a CRLF is split. An event may not grow beyond `MAX_EVENT_BYTES`.

use std::borrow::Cow;

/// The maximum size of an event, far above that of real events.
pub const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event:` field, if present.
    pub name: Option<String>,
    /// The `data:` fields, joined by line feeds.
    pub data: String,
    /// Whether bytes that are not UTF-8 were replaced.
    pub damaged: bool,
}

/// Why no more events can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    #[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
    TooLarge,
}

/// A decoder that receives bytes as they arrive.
#[derive(Debug, Default)]
pub struct SseDecoder {
    line: Vec<u8>,
    name: Option<String>,
    data: String,
    has_data: bool,
    damaged: bool,
    /// The last byte was a CR, so a LF that follows belongs to the same line end.
    after_cr: bool,
    /// The first line may begin with a byte order mark.
    started: bool,
    failed: bool,
}

impl SseDecoder {
    /// Adds bytes and returns the events that they complete. After an error every push fails.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<SseEvent>, SseError> {
        let mut events = Vec::new();
        if self.failed {
            return Err(SseError::TooLarge);
        }
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.grow(&bytes[..end])?;
            let (terminator, rest) = (bytes[end], &bytes[end + 1..]);
            bytes = rest;
            if terminator == b'\r' {
                self.after_cr = rest.is_empty();
                bytes = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            events.extend(self.end_line());
        }
        self.grow(bytes)?;
        Ok(events)
    }

    /// The last event, if the stream ended without its final blank line.
    pub fn finish(mut self) -> Option<SseEvent> {
        if self.failed {
            return None;
        }
        if !self.line.is_empty() {
            let _ = self.end_line();
        }
        self.dispatch()
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + self.data.len() + bytes.len() > MAX_EVENT_BYTES {
            self.failed = true;
            return Err(SseError::TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let mut line = std::mem::take(&mut self.line);
        let event = if line.is_empty() {
            self.dispatch()
        } else {
            self.field(&line);
            None
        };
        // The buffer is reused, because most lines have about the same length.
        line.clear();
        self.line = line;
        self.started = true;
        event
    }

    fn field(&mut self, line: &[u8]) {
        let line = if self.started { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(0) => return,
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                let text = String::from_utf8_lossy(value);
                self.damaged |= matches!(text, Cow::Owned(_));
                self.data.push_str(&text);
            }
            b"event" => self.name = Some(String::from_utf8_lossy(value).into_owned()),
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let name = self.name.take();
        if !std::mem::take(&mut self.has_data) {
            return None;
        }
        Some(SseEvent { name, data: std::mem::take(&mut self.data), damaged: std::mem::take(&mut self.damaged) })
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
