//! The whole way from bytes to an answer, without a connection.
//!
//! Invariant: the same bytes give the same text and the same end, however they were cut.

use super::assemble::Assembly;
use super::decide::{Standing, standing};
use super::decode::decode;
use super::framing::Framing;
use crate::sse::SseEvent;
use crate::{Answer, ModelError, ModelFault};

const HEAD_BYTES: usize = 64;

/// Reads one answer.
#[derive(Debug, Default)]
pub(crate) struct ChatReader {
    framing: Framing,
    assembly: Assembly,
    payloads: usize,
    /// How the body began, to tell a page from a stream that says nothing.
    head: Vec<u8>,
    /// The first payload that was no chunk; nothing after it counts.
    broken: Option<String>,
}

/// How a reading ended: an answer, or why there is none with what had arrived.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) answer: Answer,
    pub(crate) fault: Option<(ModelFault, String)>,
}

impl Verdict {
    /// As the turn wants it.
    pub(crate) fn into_result(self) -> Result<Answer, ModelError> {
        match self.fault {
            None => Ok(self.answer),
            Some((fault, message)) => Err(ModelError { received: self.answer.text, ..ModelError::new(fault, message) }),
        }
    }
}

impl ChatReader {
    /// Takes bytes; gives the texts to show.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        if self.head.len() < HEAD_BYTES {
            self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES - self.head.len())]);
        }
        if self.is_deaf() {
            return Vec::new();
        }
        match self.framing.push(bytes) {
            Ok(events) => events.iter().filter_map(|event| self.read(event)).collect(),
            Err(error) => {
                self.broken = Some(error.to_string());
                Vec::new()
            }
        }
    }

    /// Nothing that may still come can change the answer.
    pub(crate) const fn is_over(&self) -> bool {
        self.assembly.done || self.assembly.failure.is_some() || self.broken.is_some()
    }

    /// Usage may follow an error, so only an end closes the ears.
    const fn is_deaf(&self) -> bool {
        self.assembly.done || self.broken.is_some()
    }

    /// What was received of the text so far.
    pub(crate) fn text(&self) -> &str {
        &self.assembly.text
    }

    /// Whether the provider has said that it is done, so that a connection lost now costs at most the usage.
    pub(crate) fn is_whole(&self) -> bool {
        self.broken.is_none() && matches!(standing(&self.assembly), Standing::Whole | Standing::Cut)
    }

    /// Remarks on something survivable.
    pub(crate) fn note(&mut self, remark: String) {
        self.assembly.errors.push(remark);
    }

    fn read(&mut self, event: &SseEvent) -> Option<String> {
        let payload = event.data.trim();
        if self.is_deaf() || payload.is_empty() {
            return None;
        }
        if payload == "[DONE]" {
            self.assembly.done = true;
            return None;
        }
        let named_error = event.name.as_deref() == Some("error");
        if !payload.starts_with('{') {
            // Heartbeats and the like; only a chunk can carry a part of the answer.
            self.assembly.errors.push(format!("not a chunk: {}", cut(payload, 80)));
            if named_error {
                self.broken = Some(cut(payload, 512).to_owned());
            }
            return None;
        }
        match decode(payload, named_error) {
            Ok(mut chunk) => {
                self.payloads += 1;
                chunk.damaged |= event.damaged;
                self.assembly.add(chunk)
            }
            Err(error) => {
                self.broken = Some(format!("a payload is no JSON ({error}): {}", cut(payload, 80)));
                None
            }
        }
    }

    /// The end of the bytes. Texts completed by it come with the verdict.
    pub(crate) fn finish(mut self) -> (Vec<String>, Verdict) {
        let mut texts = Vec::new();
        for event in std::mem::take(&mut self.framing).finish() {
            let was_broken = self.broken.is_some();
            texts.extend(self.read(&event));
            // The stream ended inside its last event: that is a cut connection, not a bad provider.
            if !was_broken
                && self.payloads > 0
                && let Some(broken) = self.broken.take()
            {
                self.assembly.errors.push(broken);
            }
        }
        (texts, self.verdict())
    }

    /// The end, as far as what was already read tells.
    pub(crate) fn verdict(mut self) -> Verdict {
        let standing = standing(&self.assembly);
        let fault = match (self.broken.take(), standing) {
            (Some(broken), _) => {
                self.assembly.errors.push(broken.clone());
                Some((ModelFault::Protocol, broken))
            }
            (None, Standing::Failed) => Some(self.refusal()),
            (None, Standing::Open) if self.payloads == 0 && !self.is_stream() => {
                Some((ModelFault::Protocol, format!("the body is no answer: {}", String::from_utf8_lossy(&self.head))))
            }
            (None, Standing::Open) => Some((ModelFault::Incomplete, "the stream ended before the answer did".to_owned())),
            (None, Standing::Whole | Standing::Cut) => None,
        };
        let executable = fault.is_none() && standing == Standing::Whole;
        Verdict { answer: self.assembly.into_answer(executable, executable), fault }
    }

    /// Whether the body, as far as its beginning tells, was meant as an answer.
    fn is_stream(&self) -> bool {
        let head = self.head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&self.head).trim_ascii_start();
        let fields: [&[u8]; 6] = [b":", b"data", b"event", b"id", b"retry", b"{"];
        self.assembly.errors.is_empty()
            && (head.is_empty() || fields.iter().any(|field| head.starts_with(field) || field.starts_with(head)))
    }

    fn refusal(&self) -> (ModelFault, String) {
        match &self.assembly.failure {
            Some(error) => (ModelFault::Refused { status: error.status }, error.message.clone()),
            None => (ModelFault::Refused { status: 502 }, "the answer finished with an error".to_owned()),
        }
    }
}

/// At most so many bytes of a text, whole characters only.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
