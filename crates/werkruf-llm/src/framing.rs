//! The framing of a response body: server-sent events, one JSON body, or one JSON event per line.
//!
//! The first byte decides, not the content type, because servers answer a stream request with a plain body and label
//! streams as JSON. No line of an event stream starts with a brace.

use crate::sse::{SseDecoder, SseError, SseEvent};

/// Splits the bytes of one response into payloads.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    state: Wrapping,
}

#[derive(Debug)]
enum Wrapping {
    /// Only white space so far.
    Unknown(Vec<u8>),
    Events(SseDecoder),
    Json(Vec<u8>),
}

impl Default for Wrapping {
    fn default() -> Self {
        Self::Unknown(Vec::new())
    }
}

impl Framing {
    /// Adds bytes and returns the payloads that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, SseError> {
        if let Wrapping::Unknown(bytes_so_far) = &mut self.state {
            bytes_so_far.extend_from_slice(bytes);
            let Some(first) = bytes_so_far.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(Vec::new()) };
            let bytes_so_far = match first {
                b'{' | b'[' => {
                    self.state = Wrapping::Json(std::mem::take(bytes_so_far));
                    return Ok(Vec::new());
                }
                _ => std::mem::take(bytes_so_far),
            };
            let mut decoder = SseDecoder::default();
            let events = decoder.push(&bytes_so_far);
            self.state = Wrapping::Events(decoder);
            return events;
        }
        match &mut self.state {
            Wrapping::Events(decoder) => decoder.push(bytes),
            Wrapping::Json(body) => {
                body.extend_from_slice(bytes);
                Ok(Vec::new())
            }
            Wrapping::Unknown(_) => Ok(Vec::new()),
        }
    }

    /// Ends the input and returns the remaining payloads.
    pub(crate) fn finish(self) -> Vec<SseEvent> {
        match self.state {
            Wrapping::Unknown(_) => Vec::new(),
            Wrapping::Events(decoder) => decoder.finish().into_iter().collect(),
            Wrapping::Json(body) => payloads(&body),
        }
    }
}

/// The body as one payload, or one payload per line.
fn payloads(body: &[u8]) -> Vec<SseEvent> {
    if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        return vec![payload(body)];
    }
    body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).map(payload).collect()
}

fn payload(bytes: &[u8]) -> SseEvent {
    let text = String::from_utf8_lossy(bytes.trim_ascii());
    let damaged = matches!(text, std::borrow::Cow::Owned(_));
    SseEvent { name: None, data: text.into_owned(), damaged }
}
