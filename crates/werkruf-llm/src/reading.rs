//! The whole way from bytes to an answer, without a connection, for either API.
//!
//! Invariant: the same bytes give the same deltas and the same end, however they were cut.

use crate::framing::Framing;
use crate::refusal::StreamError;
use crate::sse::SseEvent;
use crate::{Answer, Delta, ModelError, ModelFault};

const HEAD_BYTES: usize = 64;

/// How an answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Whole: calls may run.
    Whole,
    /// Ended, but cut or damaged: text may be shown, calls must not run.
    Cut,
    /// The provider did not say that it was done.
    Open,
    /// The provider sent an error.
    Failed,
}

/// What two APIs do differently with the payloads of a stream.
pub(crate) trait Wire: Default {
    /// Takes one payload, a JSON object; what is to be shown now is added to `out`.
    fn take(&mut self, payload: &str, event: &SseEvent, out: &mut Vec<Delta>) -> Result<(), serde_json::Error>;
    /// `[DONE]` came.
    fn end_mark(&mut self);
    /// How the answer stands by what has arrived so far.
    fn standing(&self) -> Standing;
    /// Nothing that may still come can change the answer.
    fn is_settled(&self) -> bool;
    /// The error the provider sent.
    fn failure(&self) -> Option<&StreamError>;
    /// What was wrong but survivable.
    fn remarks(&mut self) -> &mut Vec<String>;
    /// What was received of the text so far.
    fn text(&self) -> String;
    /// The answer, as far as it came.
    fn into_answer(self, executable: bool) -> Answer;
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(crate) struct Reader<W> {
    framing: Framing,
    wire: W,
    payloads: usize,
    /// How the body began, to tell a page from a stream that says nothing.
    head: Vec<u8>,
    /// The first payload that was no JSON; nothing after it counts.
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

impl<W: Wire> Reader<W> {
    /// Takes bytes; gives what is to be shown.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Delta> {
        let mut out = Vec::new();
        if self.head.len() < HEAD_BYTES {
            self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES - self.head.len())]);
        }
        if self.is_deaf() {
            return out;
        }
        match self.framing.push(bytes) {
            Ok(events) => events.iter().for_each(|event| self.read(event, &mut out)),
            Err(error) => self.broken = Some(error.to_string()),
        }
        out
    }

    /// Nothing that may still come can change the answer.
    pub(crate) fn is_over(&self) -> bool {
        self.is_deaf() || self.wire.failure().is_some()
    }

    /// Usage may follow an error, so only an end closes the ears.
    fn is_deaf(&self) -> bool {
        self.broken.is_some() || self.wire.is_settled()
    }

    /// What was received of the text so far.
    pub(crate) fn text(&self) -> String {
        self.wire.text()
    }

    /// Whether the provider has said that it is done, so that a connection lost now costs at most the usage.
    pub(crate) fn is_whole(&self) -> bool {
        self.broken.is_none() && matches!(self.wire.standing(), Standing::Whole | Standing::Cut)
    }

    /// Remarks on something survivable.
    pub(crate) fn note(&mut self, remark: String) {
        self.wire.remarks().push(remark);
    }

    fn read(&mut self, event: &SseEvent, out: &mut Vec<Delta>) {
        let payload = event.data.trim();
        if self.is_deaf() || payload.is_empty() {
            return;
        }
        if payload == "[DONE]" {
            self.wire.end_mark();
            return;
        }
        if !payload.starts_with('{') {
            // Heartbeats and the like; only an object can carry a part of the answer.
            self.note(format!("not a chunk: {}", cut(payload, 80)));
            if event.name.as_deref() == Some("error") {
                self.broken = Some(cut(payload, 512).to_owned());
            }
            return;
        }
        match self.wire.take(payload, event, out) {
            Ok(()) => self.payloads += 1,
            Err(error) => self.broken = Some(format!("a payload is no JSON ({error}): {}", cut(payload, 80))),
        }
    }

    /// The end of the bytes. What is completed by it comes with the verdict.
    pub(crate) fn finish(mut self) -> (Vec<Delta>, Verdict) {
        let mut out = Vec::new();
        for event in std::mem::take(&mut self.framing).finish() {
            let was_broken = self.broken.is_some();
            self.read(&event, &mut out);
            // The stream ended inside its last event: that is a cut connection, not a bad provider.
            if !was_broken
                && self.payloads > 0
                && let Some(broken) = self.broken.take()
            {
                self.note(broken);
            }
        }
        (out, self.verdict())
    }

    fn verdict(mut self) -> Verdict {
        let standing = self.wire.standing();
        let fault = match (self.broken.take(), standing) {
            (Some(broken), _) => {
                self.note(broken.clone());
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
        Verdict { answer: self.wire.into_answer(executable), fault }
    }

    /// Whether the body, as far as its beginning tells, was meant as an answer.
    fn is_stream(&mut self) -> bool {
        let head = self.head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&self.head).trim_ascii_start();
        let fields: [&[u8]; 6] = [b":", b"data", b"event", b"id", b"retry", b"{"];
        let fits = head.is_empty() || fields.iter().any(|field| head.starts_with(field) || field.starts_with(head));
        fits && self.wire.remarks().is_empty()
    }

    fn refusal(&self) -> (ModelFault, String) {
        match self.wire.failure() {
            Some(error) => (ModelFault::Refused { status: error.status }, error.message.clone()),
            None => (ModelFault::Refused { status: 502 }, "the answer finished with an error".to_owned()),
        }
    }
}

/// At most so many bytes of a text, whole characters only.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
