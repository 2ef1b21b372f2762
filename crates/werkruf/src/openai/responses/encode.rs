//! Events of a turn in, events of the Responses API out. Pure: what comes out, and under which number, follows from the texts
//! and calls of the turn, not from how or when they arrived; so a stream can be told again from any number on, live or stored.

use bytes::{BufMut, BytesMut};
use serde::Deserialize;
use serde_json::{Value, json};
use werkruf_contract::{
    ApprovalRequired, AssistantSnapshot, AssistantToken, ChatMessage, ClientCall, ErrorEvent, EventType, FinishReason, ToolErrorType,
    Usage, Uuid,
};

use super::object::{Standing, State, Subject, arguments, text_part};
use super::pieces::{Broken, StepText};

/// What a turn says, as far as this door tells it.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    Token(AssistantToken),
    Snapshot(AssistantSnapshot),
    /// The text of the open step begins anew.
    Reset,
    Approval(Uuid),
    Final(Box<Ended>),
    Error(ErrorEvent),
}

/// The part of `final` that clients of this door see; stored rows and live events have it alike.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Ended {
    pub(crate) message: ChatMessage,
    #[serde(default)]
    pub(crate) client_calls: Vec<ClientCall>,
    #[serde(default)]
    pub(crate) finish_reason: FinishReason,
    pub(crate) usage: Usage,
}

impl Said {
    /// Reads an event; `None` where it is not for these clients.
    pub(crate) fn read(kind: EventType, data: &str) -> Result<Option<Self>, serde_json::Error> {
        Ok(Some(match kind {
            EventType::AssistantToken => Self::Token(serde_json::from_str(data)?),
            EventType::AssistantSnapshot => Self::Snapshot(serde_json::from_str(data)?),
            EventType::AssistantReset => Self::Reset,
            EventType::ApprovalRequired => Self::Approval(serde_json::from_str::<ApprovalRequired>(data)?.approval_id),
            EventType::Final => Self::Final(serde_json::from_str(data)?),
            EventType::Error => Self::Error(serde_json::from_str(data)?),
            EventType::Init | EventType::ToolStarted | EventType::ToolFinished | EventType::Debug => return Ok(None),
        }))
    }
}

/// One stream on its way out.
pub(crate) struct Encoder {
    subject: Subject,
    /// Events up to this number are known to the client.
    after: Option<u64>,
    next: u64,
    output: Vec<Value>,
    text: StepText,
    /// Whether the message of this text has been announced.
    open: bool,
    /// The last step whose text is a row.
    settled: u32,
    ended: bool,
}

impl Encoder {
    /// A stream whose client knows everything up to `after`.
    pub(crate) fn new(subject: Subject, after: Option<u64>) -> Self {
        Self { subject, after, next: 0, output: Vec::new(), text: StepText::default(), open: false, settled: 0, ended: false }
    }

    /// Whether the last event has been told.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// The first two events.
    pub(crate) fn begin(&mut self, out: &mut BytesMut) {
        for kind in ["response.created", "response.in_progress"] {
            self.whole(out, kind, &State::just(Standing::InProgress));
        }
    }

    /// The next thing the turn says.
    pub(crate) fn take(&mut self, out: &mut BytesMut, said: Said) {
        if self.ended {
            return;
        }
        let told = match said {
            // A token of a step that is a row already was heard beside that row.
            Said::Token(token) if token.step <= self.settled => Ok(()),
            Said::Token(token) => {
                self.text.push(&token.content);
                self.pieces(out, false)
            }
            Said::Reset => {
                self.text.begin_anew();
                Ok(())
            }
            Said::Snapshot(snapshot) => {
                self.settled = self.settled.max(snapshot.step);
                self.close(out, &snapshot.content)
            }
            Said::Approval(id) => {
                // A row of its own, so it is told again at the same place.
                self.whole(out, "response.in_progress", &State { approval_id: Some(id), ..State::just(Standing::InProgress) });
                Ok(())
            }
            Said::Final(ended) => self.finish(out, &ended),
            Said::Error(error) => {
                self.fail(out, &error);
                Ok(())
            }
        };
        if told == Err(Broken) {
            self.fail(out, &interrupted(self.subject.turn_id));
        }
    }

    /// The text of the open step as somebody who joins now finds it.
    pub(crate) fn take_shown(&mut self, out: &mut BytesMut, step: u32, content: &str) {
        if self.ended || step <= self.settled {
            return;
        }
        self.text.replace(content);
        if self.pieces(out, false).is_err() {
            self.fail(out, &interrupted(self.subject.turn_id));
        }
    }

    fn pieces(&mut self, out: &mut BytesMut, whole: bool) -> Result<(), Broken> {
        while let Some(piece) = self.text.next(whole)? {
            let piece = piece.to_owned();
            self.announce(out);
            let fields = json!({"delta": piece, "logprobs": []});
            self.in_part(out, "response.output_text.delta", fields);
        }
        Ok(())
    }

    fn announce(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.open, true) {
            let item = self.subject.message(self.output.len(), None);
            self.in_output(out, "response.output_item.added", json!({"item": item}));
            self.in_part(out, "response.content_part.added", json!({"part": text_part("")}));
        }
    }

    /// The step has ended with this text.
    fn close(&mut self, out: &mut BytesMut, content: &str) -> Result<(), Broken> {
        self.text.replace(content);
        if self.text.is_empty() {
            return Ok(());
        }
        self.pieces(out, true)?;
        let text = self.text.take();
        self.open = false;
        self.in_part(out, "response.output_text.done", json!({"text": text, "logprobs": []}));
        self.in_part(out, "response.content_part.done", json!({"part": text_part(&text)}));
        let item = self.subject.message(self.output.len(), Some(&text));
        self.in_output(out, "response.output_item.done", json!({"item": item}));
        self.output.push(item);
        Ok(())
    }

    fn finish(&mut self, out: &mut BytesMut, ended: &Ended) -> Result<(), Broken> {
        // A step with calls has told its text in a row of its own.
        if ended.client_calls.is_empty() || !self.text.is_empty() {
            self.close(out, &ended.message.content)?;
        }
        for call in &ended.client_calls {
            self.call(out, call);
        }
        let output = std::mem::take(&mut self.output);
        let standing = Standing::answered(ended.finish_reason, &ended.client_calls);
        let kind = if standing == Standing::Completed { "response.completed" } else { "response.incomplete" };
        self.whole(out, kind, &State { output: &output, usage: Some(&ended.usage), ..State::just(standing) });
        self.ended = true;
        Ok(())
    }

    fn call(&mut self, out: &mut BytesMut, call: &ClientCall) {
        let place = self.output.len();
        let (id, item) = (self.subject.call_id(place), self.subject.call(place, call));
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        begun["arguments"] = "".into();
        self.in_output(out, "response.output_item.added", json!({"item": begun}));
        let arguments = arguments(call);
        self.in_output(out, "response.function_call_arguments.delta", json!({"item_id": id, "delta": arguments}));
        let done = json!({"item_id": id, "name": call.name, "arguments": arguments});
        self.in_output(out, "response.function_call_arguments.done", done);
        self.in_output(out, "response.output_item.done", json!({"item": item}));
        self.output.push(item);
    }

    fn fail(&mut self, out: &mut BytesMut, error: &ErrorEvent) {
        // The text of the step that failed is no row: a client that has heard of it is told the end behind it all the same.
        if let Some(after) = self.after.filter(|after| self.next < *after) {
            self.next = after + 1;
        }
        let told = json!({"type": error_type(error), "code": error.code, "message": error.message, "param": null});
        let flat = json!({"error": told, "code": error.code, "message": error.message, "param": null});
        self.event(out, "error", flat);
        let output = std::mem::take(&mut self.output);
        let standing = standing_of(error);
        self.whole(out, "response.failed", &State { output: &output, error: Some(error), ..State::just(standing) });
        self.ended = true;
    }

    fn whole(&mut self, out: &mut BytesMut, kind: &str, state: &State<'_>) {
        if self.skips() {
            return;
        }
        let object = self.subject.object(state);
        self.event(out, kind, json!({"response": object}));
    }

    fn in_output(&mut self, out: &mut BytesMut, kind: &str, mut fields: Value) {
        fields["output_index"] = self.output.len().into();
        self.event(out, kind, fields);
    }

    fn in_part(&mut self, out: &mut BytesMut, kind: &str, mut fields: Value) {
        fields["item_id"] = self.subject.message_id(self.output.len()).into();
        fields["content_index"] = 0.into();
        self.in_output(out, kind, fields);
    }

    /// Counts an event the client knows, without building it.
    fn skips(&mut self) -> bool {
        let known = self.after.is_some_and(|after| self.next <= after);
        self.next += u64::from(known);
        known
    }

    fn event(&mut self, out: &mut BytesMut, kind: &str, mut fields: Value) {
        if self.skips() {
            return;
        }
        fields["type"] = kind.into();
        fields["sequence_number"] = self.next.into();
        self.next += 1;
        let data = fields.to_string();
        out.reserve(kind.len() + data.len() + 16);
        for part in ["event: ", kind, "\ndata: ", &data, "\n\n"] {
            out.put_slice(part.as_bytes());
        }
    }
}

/// How a turn that ended with this error stands.
pub(crate) fn standing_of(error: &ErrorEvent) -> Standing {
    if error.code == "canceled" { Standing::Cancelled } else { Standing::Failed }
}

fn error_type(error: &ErrorEvent) -> &'static str {
    match error.kind {
        ToolErrorType::Validation => "invalid_request_error",
        ToolErrorType::RateLimit => "rate_limit_error",
        ToolErrorType::Upstream | ToolErrorType::Timeout | ToolErrorType::Retryable | ToolErrorType::Fatal => "server_error",
    }
}

/// The model was asked again after text was shown, and says something else now.
fn interrupted(turn_id: Uuid) -> ErrorEvent {
    ErrorEvent {
        kind: ToolErrorType::Retryable,
        code: "model_interrupted".to_owned(),
        message: "The model was interrupted and now says something else than what was sent; retrieve the response for its whole text."
            .to_owned(),
        retry_after_ms: None,
        turn_id,
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
