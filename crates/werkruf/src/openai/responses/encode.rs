//! Converts the events of a turn into the events of the Responses API. No I/O.
//!
//! Invariant: the emitted events and their sequence numbers depend only on the texts and calls of the turn, not on how or when
//! the turn's events arrived. Therefore a stream can be resumed after any sequence number, from live or from stored events.

use bytes::{BufMut, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::{
    Annotation, ApprovalRequired, AssistantSnapshot, AssistantToken, ClientCall, ErrorCode, ErrorEvent, EventType, FinishReason,
    ToolErrorType, Usage, Uuid,
};

use super::deltas::{StepText, TextChanged};
use super::object::{ItemStatus, ResponseBase, ResponseState, ResponseStatus, cut_short, text_part};
use super::structured::refusal_part;
use crate::openai::client_events::TurnAnswer;

/// An event of a turn that the Responses API exposes.
#[derive(Debug, Clone)]
pub(crate) enum TurnEvent {
    Token(AssistantToken),
    Snapshot(AssistantSnapshot),
    /// The model restarts the text of the current step.
    Reset,
    Approval(Uuid),
    /// The answer, and when the turn ended.
    Final(Box<TurnAnswer>, Option<Timestamp>),
    /// The error, and what the turn has used.
    Error(ErrorEvent, Option<Usage>),
}

impl TurnEvent {
    /// Parses an event; `None` for event types that the Responses API does not expose.
    pub(crate) fn read(kind: EventType, data: &str, at: Option<Timestamp>) -> Result<Option<Self>, serde_json::Error> {
        Ok(Some(match kind {
            EventType::AssistantToken => Self::Token(serde_json::from_str(data)?),
            EventType::AssistantSnapshot => Self::Snapshot(serde_json::from_str(data)?),
            EventType::AssistantReset => Self::Reset,
            EventType::ApprovalRequired => Self::Approval(serde_json::from_str::<ApprovalRequired>(data)?.approval_id),
            EventType::Final => Self::Final(serde_json::from_str(data)?, at),
            EventType::Error => Self::Error(serde_json::from_str(data)?, None),
            EventType::Init | EventType::ToolStarted | EventType::ToolProgress | EventType::ToolFinished | EventType::Debug => {
                return Ok(None);
            }
        }))
    }
}

/// The encoder of one response stream.
pub(crate) struct Encoder {
    base: ResponseBase,
    /// The client already has the events up to this sequence number.
    after: Option<u64>,
    next: u64,
    output: Vec<Value>,
    text: StepText,
    /// Whether `response.output_item.added` was emitted for the message of the current step.
    message_open: bool,
    /// The last step whose text is stored as an event row.
    stored_step: u32,
    /// Whether only the text of the last step is the answer. It is emitted when the turn has ended.
    last_step_only: bool,
    ended: bool,
}

impl Encoder {
    /// Creates an encoder for a client that already has the events up to `after`.
    pub(crate) fn new(base: ResponseBase, after: Option<u64>) -> Self {
        let last_step_only = base.echo.asks_for_json();
        Self {
            base,
            after,
            next: 0,
            output: Vec::new(),
            text: StepText::default(),
            message_open: false,
            stored_step: 0,
            last_step_only,
            ended: false,
        }
    }

    /// Creates an encoder for the client that started the turn. Where only one step can come, its text need not wait for the end; the events are the same.
    pub(crate) fn live(base: ResponseBase, last_step_only: bool) -> Self {
        Self { last_step_only, ..Self::new(base, None) }
    }

    /// Whether the last event was emitted.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Emits the first two events.
    pub(crate) fn start(&mut self, out: &mut BytesMut) {
        for kind in ["response.created", "response.in_progress"] {
            self.response_event(out, kind, &ResponseState::with_status(ResponseStatus::InProgress));
        }
    }

    /// Encodes the next event of the turn.
    pub(crate) fn take(&mut self, out: &mut BytesMut, event: TurnEvent) {
        if self.ended {
            return;
        }
        let result = match event {
            // The stored text of the step was read first; this live token is already part of it.
            TurnEvent::Token(token) if token.step <= self.stored_step => Ok(()),
            TurnEvent::Token(_) | TurnEvent::Snapshot(_) if self.last_step_only => Ok(()),
            TurnEvent::Token(token) => {
                self.text.push(&token.content);
                self.emit_deltas(out, false)
            }
            TurnEvent::Reset => {
                self.text.restart();
                Ok(())
            }
            TurnEvent::Snapshot(snapshot) => {
                self.stored_step = self.stored_step.max(snapshot.step);
                self.close_message(out, &snapshot.content, &snapshot.annotations, ItemStatus::of_step(&snapshot))
            }
            TurnEvent::Approval(id) => {
                // The approval request is an event row of its own, so a resumed stream emits it at the same position.
                self.response_event(
                    out,
                    "response.in_progress",
                    &ResponseState { approval_id: Some(id), ..ResponseState::with_status(ResponseStatus::InProgress) },
                );
                Ok(())
            }
            TurnEvent::Final(answer, at) => self.finish(out, &answer, at),
            TurnEvent::Error(error, usage) => {
                self.fail(out, &error, usage.as_ref());
                Ok(())
            }
        };
        if result == Err(TextChanged) {
            self.fail(out, &interrupted(self.base.turn_id), None);
        }
    }

    /// Encodes the partial text of the current step, for a client that subscribes in the middle of the step.
    pub(crate) fn take_partial(&mut self, out: &mut BytesMut, step: u32, content: &str) {
        if self.ended || self.last_step_only || step <= self.stored_step {
            return;
        }
        self.text.replace(content);
        if self.emit_deltas(out, false).is_err() {
            self.fail(out, &interrupted(self.base.turn_id), None);
        }
    }

    fn emit_deltas(&mut self, out: &mut BytesMut, complete: bool) -> Result<(), TextChanged> {
        while let Some(delta) = self.text.next(complete)? {
            let delta = delta.to_owned();
            self.open_message(out);
            let fields = json!({"delta": delta, "logprobs": []});
            self.content_event(out, "response.output_text.delta", fields);
        }
        Ok(())
    }

    fn open_message(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.message_open, true) {
            let item = self.base.message(self.output.len(), None, ItemStatus::InProgress);
            self.output_event(out, "response.output_item.added", json!({"item": item}));
            self.content_event(out, "response.content_part.added", json!({"part": text_part("", &[])}));
        }
    }

    /// Closes the message of a step that ended with this text.
    fn close_message(
        &mut self,
        out: &mut BytesMut,
        content: &str,
        annotations: &[Annotation],
        status: ItemStatus,
    ) -> Result<(), TextChanged> {
        self.text.replace(content);
        if self.text.is_empty() {
            return Ok(());
        }
        self.emit_deltas(out, true)?;
        let text = self.text.take();
        self.message_open = false;
        for (index, annotation) in annotations.iter().enumerate() {
            let fields = json!({"annotation_index": index, "annotation": annotation});
            self.content_event(out, "response.output_text.annotation.added", fields);
        }
        self.content_event(out, "response.output_text.done", json!({"text": text, "logprobs": []}));
        self.content_event(out, "response.content_part.done", json!({"part": text_part(&text, annotations)}));
        let item = self.base.message(self.output.len(), Some((&text, annotations)), status);
        self.output_event(out, "response.output_item.done", json!({"item": item}));
        self.output.push(item);
        Ok(())
    }

    fn finish(&mut self, out: &mut BytesMut, answer: &TurnAnswer, ended_at: Option<Timestamp>) -> Result<(), TextChanged> {
        let status = ResponseStatus::of_answer(answer.finish_reason, &answer.client_calls);
        // The text of a step with calls was already emitted from the snapshot row of that step.
        if answer.finish_reason == FinishReason::Refusal {
            self.emit_refusal(out, &answer.message.content);
        } else if self.last_step_only || answer.client_calls.is_empty() || !self.text.is_empty() {
            self.close_message(out, &answer.message.content, &answer.message.annotations, ItemStatus::of_last(status))?;
        }
        for call in &answer.client_calls {
            self.emit_call(out, call);
        }
        let output = std::mem::take(&mut self.output);
        let kind = if status == ResponseStatus::Completed { "response.completed" } else { "response.incomplete" };
        self.response_event(
            out,
            kind,
            &ResponseState { output: &output, usage: Some(&answer.usage), ended_at, ..ResponseState::with_status(status) },
        );
        self.ended = true;
        Ok(())
    }

    fn emit_refusal(&mut self, out: &mut BytesMut, text: &str) {
        let index = self.output.len();
        self.output_event(out, "response.output_item.added", json!({"item": self.base.refusal(index, None)}));
        self.content_event(out, "response.content_part.added", json!({"part": refusal_part("")}));
        self.content_event(out, "response.refusal.delta", json!({"delta": text}));
        self.content_event(out, "response.refusal.done", json!({"refusal": text}));
        self.content_event(out, "response.content_part.done", json!({"part": refusal_part(text)}));
        let item = self.base.refusal(index, Some(text));
        self.output_event(out, "response.output_item.done", json!({"item": item}));
        self.output.push(item);
    }

    fn emit_call(&mut self, out: &mut BytesMut, call: &ClientCall) {
        let item = self.base.call(self.output.len(), call);
        // A custom tool has a free text in place of arguments.
        let (field, kind) = if item["type"] == "custom_tool_call" {
            ("input", "response.custom_tool_call_input")
        } else {
            ("arguments", "response.function_call_arguments")
        };
        let (id, text) = (item["id"].clone(), item[field].clone());
        let mut added = item.clone();
        added["status"] = "in_progress".into();
        added[field] = "".into();
        self.output_event(out, "response.output_item.added", json!({"item": added}));
        self.output_event(out, &format!("{kind}.delta"), json!({"item_id": id, "delta": text}));
        let mut done = json!({"item_id": id});
        done[field] = text;
        if field == "arguments" {
            done["name"] = call.name.as_str().into();
        }
        self.output_event(out, &format!("{kind}.done"), done);
        self.output_event(out, "response.output_item.done", json!({"item": item}));
        self.output.push(item);
    }

    fn fail(&mut self, out: &mut BytesMut, error: &ErrorEvent, usage: Option<&Usage>) {
        // The text of the failed step is not stored. A client that received deltas of it has a higher sequence number than the
        // stored events give; the final events continue after that number, so the client still receives them.
        if let Some(after) = self.after.filter(|after| self.next < *after) {
            self.next = after + 1;
        }
        let detail = json!({"type": error_type(error), "code": error.code, "message": error.message, "param": null});
        let flat = json!({"error": detail, "code": error.code, "message": error.message, "param": null});
        self.emit(out, "error", flat);
        let mut output = std::mem::take(&mut self.output);
        cut_short(&mut output);
        let status = status_of_error(error);
        self.response_event(
            out,
            "response.failed",
            &ResponseState { output: &output, usage, error: Some(error), ..ResponseState::with_status(status) },
        );
        self.ended = true;
    }

    fn response_event(&mut self, out: &mut BytesMut, kind: &str, state: &ResponseState<'_>) {
        if self.skip_received() {
            return;
        }
        let object = self.base.object(state);
        self.emit(out, kind, json!({"response": object}));
    }

    fn output_event(&mut self, out: &mut BytesMut, kind: &str, mut fields: Value) {
        fields["output_index"] = self.output.len().into();
        self.emit(out, kind, fields);
    }

    fn content_event(&mut self, out: &mut BytesMut, kind: &str, mut fields: Value) {
        fields["item_id"] = self.base.message_id(self.output.len()).into();
        fields["content_index"] = 0.into();
        self.output_event(out, kind, fields);
    }

    /// Counts an event that the client already has, without building it.
    fn skip_received(&mut self) -> bool {
        let received = self.after.is_some_and(|after| self.next <= after);
        self.next += u64::from(received);
        received
    }

    fn emit(&mut self, out: &mut BytesMut, kind: &str, mut fields: Value) {
        if self.skip_received() {
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

/// The status of a response whose turn ended with this error.
pub(crate) fn status_of_error(error: &ErrorEvent) -> ResponseStatus {
    if error.is(ErrorCode::Canceled) { ResponseStatus::Cancelled } else { ResponseStatus::Failed }
}

fn error_type(error: &ErrorEvent) -> &'static str {
    match error.kind {
        ToolErrorType::Validation => "invalid_request_error",
        ToolErrorType::RateLimit => "rate_limit_error",
        ToolErrorType::Upstream | ToolErrorType::Timeout | ToolErrorType::Retryable | ToolErrorType::Fatal => "server_error",
    }
}

/// The model request was repeated after text had been sent, and the new text differs from the text that was sent.
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
