//! The events that a client of the OpenAI-compatible APIs receives of a turn: text in order, calls of its own tools, and the end.
//!
//! Invariants: the text events of a turn, joined, are exactly the texts of its steps; no text is sent twice. Live events and
//! stored events give the same result.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use werkruf_contract::{
    Annotation, AssistantSnapshot, AssistantToken, ChatMessage, ClientCall, ErrorEvent, EventType, FinishReason, ToolErrorType, Usage, Uuid,
};
use werkruf_runtime::{LiveEvent, Subscription};

/// The source of a turn's events: a live subscription or stored events.
pub(crate) enum TurnEvents {
    Live(Subscription),
    /// The events of a turn that another request started, once it has ended.
    AtEnd(BoxFuture<'static, VecDeque<LiveEvent>>),
    Stored(VecDeque<LiveEvent>),
}

impl TurnEvents {
    /// The next event; `None` at the end.
    pub(crate) async fn recv(&mut self) -> Option<LiveEvent> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the next event.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<LiveEvent>> {
        if let Self::AtEnd(events) = self {
            *self = Self::Stored(ready!(events.as_mut().poll(cx)));
        }
        match self {
            Self::Live(subscription) => subscription.poll_recv(cx),
            Self::AtEnd(_) => Poll::Pending,
            Self::Stored(rows) => Poll::Ready(rows.pop_front()),
        }
    }
}

/// An event for the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClientEvent {
    /// More text of a step. Only steps with text are counted, from 0.
    Text { step: u32, text: String },
    /// What the text so far refers to. Positions count in the text of all steps.
    Annotations(Vec<Annotation>),
    /// The turn ended with an answer.
    Answered(TurnAnswer),
    /// The turn ended without an answer, or its answer could not be sent.
    Failed(TurnFailure),
    /// The turn waits for approvals and continues after their decision.
    AwaitingApproval(Vec<PendingApproval>),
}

/// The part of the `final` event that these clients see. Stored and live events both have it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct TurnAnswer {
    pub(crate) message: ChatMessage,
    /// Calls that the client has to run.
    #[serde(default)]
    pub(crate) client_calls: Vec<ClientCall>,
    #[serde(default)]
    pub(crate) finish_reason: FinishReason,
    /// The sum over all model requests of the turn.
    pub(crate) usage: Usage,
}

/// Why there is no answer. An [`ErrorEvent`] that can be compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnFailure {
    pub(crate) kind: ToolErrorType,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) turn_id: Uuid,
}

impl From<ErrorEvent> for TurnFailure {
    fn from(ErrorEvent { kind, code, message, retry_after_ms, turn_id }: ErrorEvent) -> Self {
        Self { kind, code, message, retry_after_ms, turn_id }
    }
}

impl TurnFailure {
    /// The `error` event of the native API.
    pub(crate) fn event(&self) -> ErrorEvent {
        let Self { kind, code, message, retry_after_ms, turn_id } = self.clone();
        ErrorEvent { kind, code, message, retry_after_ms, turn_id }
    }

    /// The model restarted with a different text, but text that was sent cannot be withdrawn.
    fn interrupted(turn_id: Uuid) -> Self {
        let message = "The language model broke off and began a different answer; send the request again.".to_owned();
        Self { kind: ToolErrorType::Retryable, code: "model_interrupted".to_owned(), message, retry_after_ms: None, turn_id }
    }

    /// The events ended before the turn: the server shuts down, or the client reads too slowly.
    fn cut_short(turn_id: Uuid) -> Self {
        let message = format!("The answer was cut short; the turn continues, and GET /api/turns/{turn_id} says how it ended.");
        Self { kind: ToolErrorType::Retryable, code: "server_busy".to_owned(), message, retry_after_ms: Some(1000), turn_id }
    }

    fn unreadable(turn_id: Uuid) -> Self {
        let message = "The server failed; the log has the cause.".to_owned();
        Self { kind: ToolErrorType::Fatal, code: "internal".to_owned(), message, retry_after_ms: None, turn_id }
    }
}

/// A call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct PendingApproval {
    pub(crate) approval_id: Uuid,
    pub(crate) tool: String,
    /// The usage of the turn up to the approval request.
    #[serde(default)]
    pub(crate) usage: Usage,
}

/// Converts the events of one turn into [`ClientEvent`]s.
#[derive(Debug, Default)]
pub(crate) struct ClientEventReader {
    /// The text of the current step that was sent to the client.
    sent: String,
    /// How many bytes of `sent` the model has produced. Less than all of them after the model restarted the step.
    produced: usize,
    /// How many steps with text have ended.
    step: u32,
    /// How many characters their texts have.
    characters: u64,
    /// The text of the last step that ended.
    last_step_text: String,
    pending_approvals: Vec<PendingApproval>,
    /// Whether only the text of the last step is sent.
    last_step_only: bool,
    ended: bool,
}

impl ClientEventReader {
    /// A reader of the text of every step, or of the last step only.
    pub(crate) fn new(last_step_only: bool) -> Self {
        Self { last_step_only, ..Self::default() }
    }

    /// Whether the last event was returned.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Converts the next event of the turn.
    pub(crate) fn read(&mut self, event: &LiveEvent) -> Vec<ClientEvent> {
        if self.ended {
            return Vec::new();
        }
        let client_events = self.convert(event).unwrap_or_else(|failure| vec![ClientEvent::Failed(failure)]);
        self.ended = client_events.iter().any(|event| !matches!(event, ClientEvent::Text { .. } | ClientEvent::Annotations(_)));
        client_events
    }

    /// Returns the last event when the source has no more events; `None` if the last event was returned before.
    pub(crate) fn end(&mut self, turn_id: Uuid) -> Option<ClientEvent> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        if self.pending_approvals.is_empty() {
            return Some(ClientEvent::Failed(TurnFailure::cut_short(turn_id)));
        }
        Some(ClientEvent::AwaitingApproval(std::mem::take(&mut self.pending_approvals)))
    }

    fn convert(&mut self, event: &LiveEvent) -> Result<Vec<ClientEvent>, TurnFailure> {
        let turn_id = event.turn_id;
        match event.kind {
            EventType::AssistantToken | EventType::AssistantSnapshot if self.last_step_only => Ok(Vec::new()),
            EventType::AssistantToken => {
                let AssistantToken { content, .. } = parse(event)?;
                let text = self.token(&content).ok_or_else(|| TurnFailure::interrupted(turn_id))?;
                Ok(self.text(text).into_iter().collect())
            }
            EventType::AssistantReset => {
                self.produced = 0;
                Ok(Vec::new())
            }
            EventType::AssistantSnapshot if event.seq.is_none() => {
                let AssistantSnapshot { content, .. } = parse(event)?;
                let text = self.partial_text(&content).ok_or_else(|| TurnFailure::interrupted(turn_id))?;
                Ok(self.text(text).into_iter().collect())
            }
            EventType::AssistantSnapshot => {
                let AssistantSnapshot { content, annotations, .. } = parse(event)?;
                let text = self.complete_text(&content).ok_or_else(|| TurnFailure::interrupted(turn_id))?;
                let client_events = self.text(text).into_iter().chain(self.annotations(annotations)).collect();
                self.next_step();
                Ok(client_events)
            }
            EventType::ApprovalRequired => {
                self.pending_approvals.push(parse(event)?);
                Ok(Vec::new())
            }
            EventType::Final => {
                let mut answer: TurnAnswer = parse(event)?;
                // The text of an answer with client calls was already sent with the snapshot of its step.
                let already_sent = !answer.client_calls.is_empty() && self.sent.is_empty() && self.last_step_text == answer.message.content;
                // A refusal is not part of the text.
                let is_refusal = answer.finish_reason == FinishReason::Refusal;
                let text = if already_sent || is_refusal { "" } else { &answer.message.content };
                let text = self.complete_text(text).ok_or_else(|| TurnFailure::interrupted(turn_id))?;
                let annotations = std::mem::take(&mut answer.message.annotations);
                let annotations = self.annotations(if already_sent { Vec::new() } else { annotations });
                Ok(self.text(text).into_iter().chain(annotations).chain([ClientEvent::Answered(answer)]).collect())
            }
            EventType::Error => Ok(vec![ClientEvent::Failed(parse::<ErrorEvent>(event)?.into())]),
            EventType::Init | EventType::ToolStarted | EventType::ToolProgress | EventType::ToolFinished | EventType::Debug => {
                Ok(Vec::new())
            }
        }
    }

    fn text(&self, text: String) -> Option<ClientEvent> {
        (!text.is_empty()).then_some(ClientEvent::Text { step: self.step, text })
    }

    fn annotations(&self, of_step: Vec<Annotation>) -> Option<ClientEvent> {
        if of_step.is_empty() {
            return None;
        }
        let shifted = of_step.into_iter().map(|annotation| annotation.shifted(self.characters));
        Some(ClientEvent::Annotations(shifted.collect()))
    }

    /// The part of a token that was not sent yet; `None` if the token contradicts the text that was sent.
    fn token(&mut self, token: &str) -> Option<String> {
        let expected = &self.sent.as_bytes()[self.produced..];
        let overlap = expected.len().min(token.len());
        if expected[..overlap] != token.as_bytes()[..overlap] {
            return None;
        }
        self.produced += token.len();
        let new = token.get(overlap..)?;
        self.sent.push_str(new);
        Some(new.to_owned())
    }

    /// The part of a partial step text that was not sent yet; `None` if it contradicts the text that was sent.
    fn partial_text(&mut self, partial: &str) -> Option<String> {
        if self.sent.starts_with(partial) {
            self.produced = partial.len();
            return Some(String::new());
        }
        self.complete_text(partial)
    }

    /// The part of the complete step text that was not sent yet; `None` if it contradicts the text that was sent.
    fn complete_text(&mut self, text: &str) -> Option<String> {
        let new = text.strip_prefix(self.sent.as_str())?.to_owned();
        self.sent.push_str(&new);
        self.produced = self.sent.len();
        Some(new)
    }

    fn next_step(&mut self) {
        if !self.sent.is_empty() {
            self.step += 1;
            self.characters += self.sent.chars().count() as u64;
        }
        self.last_step_text = std::mem::take(&mut self.sent);
        self.produced = 0;
    }
}

fn parse<T: DeserializeOwned>(event: &LiveEvent) -> Result<T, TurnFailure> {
    serde_json::from_str(&event.data).map_err(|error| {
        tracing::error!(turn_id = %event.turn_id, %error, kind = event.kind.as_str(), "an event cannot be read");
        TurnFailure::unreadable(event.turn_id)
    })
}

#[cfg(test)]
#[path = "client_events_tests.rs"]
mod tests;
