//! Reads the bytes of a response into an answer, without a connection, for both APIs.
//!
//! Invariant: the same bytes give the same deltas and the same outcome, whatever the chunk sizes.

use crate::framing::Framing;
use crate::sse::SseEvent;
use crate::stream_error::StreamError;
use crate::{Answer, Delta, ModelError, ModelFault};

const HEAD_BYTES: usize = 64;

/// How complete an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerState {
    /// Complete: calls may run.
    Complete,
    /// Ended, but truncated or damaged: text may be shown, calls must not run.
    Truncated,
    /// The provider has not reported the end of the answer.
    Open,
    /// The provider sent an error.
    Failed,
}

/// The API-specific assembly of payloads into an answer.
pub(crate) trait Wire: Default {
    /// Adds one payload, a JSON object, and appends the resulting deltas to `out`.
    fn add_payload(&mut self, payload: &str, event: &SseEvent, out: &mut Vec<Delta>) -> Result<(), serde_json::Error>;
    /// Called when `[DONE]` arrived.
    fn mark_done(&mut self);
    /// The state of the answer so far.
    fn state(&self) -> AnswerState;
    /// Whether no further input can change the answer.
    fn is_final(&self) -> bool;
    /// The error that the provider sent.
    fn failure(&self) -> Option<&StreamError>;
    /// Problems that did not prevent the answer.
    fn warnings(&mut self) -> &mut Vec<String>;
    /// The text received so far.
    fn text(&self) -> String;
    /// The answer as far as it was received.
    fn into_answer(self, executable: bool) -> Answer;
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(crate) struct Reader<W> {
    framing: Framing,
    wire: W,
    payloads: usize,
    /// The first bytes of the body, to distinguish a web page from an empty stream.
    head: Vec<u8>,
    /// Set when a payload is not valid JSON; all later input is ignored.
    invalid: Option<String>,
}

/// The result of reading: an answer, or a fault together with what was received.
#[derive(Debug)]
pub(crate) struct ReadOutcome {
    pub(crate) answer: Answer,
    pub(crate) fault: Option<(ModelFault, String)>,
}

impl ReadOutcome {
    /// Converts the outcome for the caller.
    pub(crate) fn into_result(self) -> Result<Answer, ModelError> {
        match self.fault {
            None => Ok(self.answer),
            Some((fault, message)) => {
                Err(ModelError { received: self.answer.text, usage: self.answer.usage, ..ModelError::new(fault, message) })
            }
        }
    }
}

impl<W: Wire> Reader<W> {
    /// Adds bytes and returns the resulting deltas.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Delta> {
        let mut out = Vec::new();
        if self.head.len() < HEAD_BYTES {
            self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES - self.head.len())]);
        }
        if self.ignores_input() {
            return out;
        }
        match self.framing.push(bytes) {
            Ok(events) => events.iter().for_each(|event| self.read(event, &mut out)),
            Err(error) => self.invalid = Some(error.to_string()),
        }
        out
    }

    /// Whether reading can stop, because no further input can change the answer or the provider sent an error.
    pub(crate) fn is_finished(&self) -> bool {
        self.ignores_input() || self.wire.failure().is_some()
    }

    /// Only the end of the answer stops reading, because usage may follow an error.
    fn ignores_input(&self) -> bool {
        self.invalid.is_some() || self.wire.is_final()
    }

    /// The text received so far.
    pub(crate) fn text(&self) -> String {
        self.wire.text()
    }

    /// Whether the provider has reported the end of the answer, so that a connection lost now loses at most the usage.
    pub(crate) fn is_complete(&self) -> bool {
        self.invalid.is_none() && matches!(self.wire.state(), AnswerState::Complete | AnswerState::Truncated)
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, warning: String) {
        self.wire.warnings().push(warning);
    }

    fn read(&mut self, event: &SseEvent, out: &mut Vec<Delta>) {
        let payload = event.data.trim();
        if self.ignores_input() || payload.is_empty() {
            return;
        }
        if payload == "[DONE]" {
            self.wire.mark_done();
            return;
        }
        if !payload.starts_with('{') {
            // A keep-alive or similar; only an object can be part of the answer.
            self.warn(format!("not a chunk: {}", cut(payload, 80)));
            if event.name.as_deref() == Some("error") {
                self.invalid = Some(cut(payload, 512).to_owned());
            }
            return;
        }
        match self.wire.add_payload(payload, event, out) {
            Ok(()) => self.payloads += 1,
            Err(error) => self.invalid = Some(format!("a payload is not JSON ({error}): {}", cut(payload, 80))),
        }
    }

    /// Ends the input. Returns the remaining deltas and the outcome.
    pub(crate) fn finish(mut self) -> (Vec<Delta>, ReadOutcome) {
        let mut out = Vec::new();
        for event in std::mem::take(&mut self.framing).finish() {
            let was_invalid = self.invalid.is_some();
            self.read(&event, &mut out);
            // The stream ended inside its last event, so the connection was cut; the provider is not at fault.
            if !was_invalid
                && self.payloads > 0
                && let Some(invalid) = self.invalid.take()
            {
                self.warn(invalid);
            }
        }
        (out, self.outcome())
    }

    fn outcome(mut self) -> ReadOutcome {
        let state = self.wire.state();
        let fault = match (self.invalid.take(), state) {
            (Some(invalid), _) => {
                self.warn(invalid.clone());
                Some((ModelFault::Protocol, invalid))
            }
            (None, AnswerState::Failed) => Some(self.provider_fault()),
            (None, AnswerState::Open) if self.payloads == 0 && !self.is_stream() => {
                Some((ModelFault::Protocol, format!("the body is not an answer: {}", String::from_utf8_lossy(&self.head))))
            }
            (None, AnswerState::Open) => Some((ModelFault::Incomplete, "the stream ended before the answer did".to_owned())),
            (None, AnswerState::Complete | AnswerState::Truncated) => None,
        };
        let executable = fault.is_none() && state == AnswerState::Complete;
        ReadOutcome { answer: self.wire.into_answer(executable), fault }
    }

    /// Whether the start of the body looks like an answer.
    fn is_stream(&mut self) -> bool {
        let head = self.head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&self.head).trim_ascii_start();
        let fields: [&[u8]; 6] = [b":", b"data", b"event", b"id", b"retry", b"{"];
        let fits = head.is_empty() || fields.iter().any(|field| head.starts_with(field) || field.starts_with(head));
        fits && self.wire.warnings().is_empty()
    }

    fn provider_fault(&self) -> (ModelFault, String) {
        match self.wire.failure() {
            Some(error) => (ModelFault::Refused { status: error.status }, error.message.clone()),
            None => (ModelFault::Refused { status: 502 }, "the answer finished with an error".to_owned()),
        }
    }
}

/// The text cut to this many bytes at most, at a character boundary.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
