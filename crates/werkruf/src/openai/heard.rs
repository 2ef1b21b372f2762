//! What a client of these doors may hear of a turn: text in order, calls of its own tools, and how it ended.
//!
//! Invariants: the pieces of text of all steps, put together, are exactly what the steps say; nothing is said twice. Live
//! events and stored rows lead to the same.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use werkruf_contract::{
    AssistantSnapshot, AssistantToken, ChatMessage, ClientCall, ErrorEvent, EventType, FinishReason, ToolErrorType, Usage, Uuid,
};
use werkruf_runtime::{LiveEvent, Subscription};

/// The events of a turn, as they happen or as they were stored.
pub(crate) enum Events {
    Live(Subscription),
    Stored(VecDeque<LiveEvent>),
}

impl Events {
    /// The next event; `None` at the end.
    pub(crate) async fn recv(&mut self) -> Option<LiveEvent> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The same, for whoever polls by hand.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<LiveEvent>> {
        match self {
            Self::Live(feed) => feed.poll_recv(cx),
            Self::Stored(rows) => Poll::Ready(rows.pop_front()),
        }
    }
}

/// One thing a client hears.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    /// More text of a step; steps count from 0 in the order they speak.
    Text { step: u32, text: String },
    /// The turn has ended with an answer.
    Done(Done),
    /// The turn has ended without one.
    Failed(Failed),
    /// A person must decide first; the turn goes on later.
    Waiting(Vec<Awaited>),
}

/// How an answered turn ended.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Done {
    pub(crate) message: ChatMessage,
    /// For the client to run.
    #[serde(default)]
    pub(crate) client_calls: Vec<ClientCall>,
    #[serde(default)]
    pub(crate) finish_reason: FinishReason,
    /// Summed over all model passes.
    pub(crate) usage: Usage,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failed {
    pub(crate) kind: ToolErrorType,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) turn_id: Uuid,
}

impl From<ErrorEvent> for Failed {
    fn from(ErrorEvent { kind, code, message, retry_after_ms, turn_id }: ErrorEvent) -> Self {
        Self { kind, code, message, retry_after_ms, turn_id }
    }
}

impl Failed {
    /// As the native door tells it.
    pub(crate) fn event(&self) -> ErrorEvent {
        let Self { kind, code, message, retry_after_ms, turn_id } = self.clone();
        ErrorEvent { kind, code, message, retry_after_ms, turn_id }
    }

    /// Text that was shown cannot be taken back.
    fn interrupted(turn_id: Uuid) -> Self {
        let message = "The language model broke off and began a different answer; send the request again.".to_owned();
        Self { kind: ToolErrorType::Retryable, code: "model_interrupted".to_owned(), message, retry_after_ms: None, turn_id }
    }

    /// The events ended before the turn did: the server is closing, or its client reads too slowly.
    fn cut_short(turn_id: Uuid) -> Self {
        let message = format!("The answer was cut short; the turn goes on, and GET /api/turns/{turn_id} says how it ended.");
        Self { kind: ToolErrorType::Retryable, code: "server_busy".to_owned(), message, retry_after_ms: Some(1000), turn_id }
    }

    fn unreadable(turn_id: Uuid) -> Self {
        let message = "The server failed; the log has the cause.".to_owned();
        Self { kind: ToolErrorType::Fatal, code: "internal".to_owned(), message, retry_after_ms: None, turn_id }
    }
}

/// A call that needs a person's word.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Awaited {
    pub(crate) approval_id: Uuid,
    pub(crate) tool: String,
    /// What the turn had cost when it was asked for.
    #[serde(default)]
    pub(crate) usage: Usage,
}

/// Hears the events of one turn.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    /// What the client was sent of the step that is open.
    sent: String,
    /// How much of it the model has said; less than all after it began again.
    said: usize,
    /// Counts steps that had text.
    step: u32,
    /// The text of the last step that is settled.
    settled: String,
    awaited: Vec<Awaited>,
    ended: bool,
}

impl Listener {
    /// Whether nothing more will be heard.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// One event further.
    pub(crate) fn hear(&mut self, event: &LiveEvent) -> Vec<Heard> {
        if self.ended {
            return Vec::new();
        }
        let heard = self.take(event).unwrap_or_else(|failed| vec![Heard::Failed(failed)]);
        self.ended = heard.iter().any(|one| !matches!(one, Heard::Text { .. }));
        heard
    }

    /// There are no more events. `None` when the end was heard already.
    pub(crate) fn end(&mut self, turn_id: Uuid) -> Option<Heard> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        if self.awaited.is_empty() {
            return Some(Heard::Failed(Failed::cut_short(turn_id)));
        }
        Some(Heard::Waiting(std::mem::take(&mut self.awaited)))
    }

    fn take(&mut self, event: &LiveEvent) -> Result<Vec<Heard>, Failed> {
        let turn_id = event.turn_id;
        match event.kind {
            EventType::AssistantToken => {
                let AssistantToken { content, .. } = read(event)?;
                let text = self.token(&content).ok_or_else(|| Failed::interrupted(turn_id))?;
                Ok(self.text(text).into_iter().collect())
            }
            EventType::AssistantReset => {
                self.said = 0;
                Ok(Vec::new())
            }
            EventType::AssistantSnapshot if event.seq.is_none() => {
                let AssistantSnapshot { content, .. } = read(event)?;
                let text = self.shown(&content).ok_or_else(|| Failed::interrupted(turn_id))?;
                Ok(self.text(text).into_iter().collect())
            }
            EventType::AssistantSnapshot => {
                let AssistantSnapshot { content, .. } = read(event)?;
                let text = self.settle(&content).ok_or_else(|| Failed::interrupted(turn_id))?;
                let heard = self.text(text).into_iter().collect();
                self.next_step();
                Ok(heard)
            }
            EventType::ApprovalRequired => {
                self.awaited.push(read(event)?);
                Ok(Vec::new())
            }
            EventType::Final => {
                let done: Done = read(event)?;
                // An answer that leaves calls to the client was settled with them.
                let told = !done.client_calls.is_empty() && self.sent.is_empty() && self.settled == done.message.content;
                let whole = if told { "" } else { &done.message.content };
                let text = self.settle(whole).ok_or_else(|| Failed::interrupted(turn_id))?;
                Ok(self.text(text).into_iter().chain([Heard::Done(done)]).collect())
            }
            EventType::Error => Ok(vec![Heard::Failed(read::<ErrorEvent>(event)?.into())]),
            EventType::Init | EventType::ToolStarted | EventType::ToolFinished | EventType::Debug => Ok(Vec::new()),
        }
    }

    fn text(&self, text: String) -> Option<Heard> {
        (!text.is_empty()).then_some(Heard::Text { step: self.step, text })
    }

    /// What a token adds to what was sent; `None` when it contradicts it.
    fn token(&mut self, token: &str) -> Option<String> {
        let known = &self.sent.as_bytes()[self.said..];
        let overlap = known.len().min(token.len());
        if known[..overlap] != token.as_bytes()[..overlap] {
            return None;
        }
        self.said += token.len();
        let new = token.get(overlap..)?;
        self.sent.push_str(new);
        Some(new.to_owned())
    }

    /// What the text of the open step, as far as it is kept, adds; `None` when it contradicts what was sent.
    fn shown(&mut self, kept: &str) -> Option<String> {
        if self.sent.starts_with(kept) {
            self.said = kept.len();
            return Some(String::new());
        }
        self.settle(kept)
    }

    /// What the whole text of the step adds; `None` when it contradicts what was sent.
    fn settle(&mut self, whole: &str) -> Option<String> {
        let new = whole.strip_prefix(self.sent.as_str())?.to_owned();
        self.sent.push_str(&new);
        self.said = self.sent.len();
        Some(new)
    }

    fn next_step(&mut self) {
        if !self.sent.is_empty() {
            self.step += 1;
        }
        self.settled = std::mem::take(&mut self.sent);
        self.said = 0;
    }
}

fn read<T: DeserializeOwned>(event: &LiveEvent) -> Result<T, Failed> {
    serde_json::from_str(&event.data).map_err(|error| {
        tracing::error!(%error, kind = event.kind.as_str(), "an event cannot be read");
        Failed::unreadable(event.turn_id)
    })
}

#[cfg(test)]
#[path = "heard_tests.rs"]
mod tests;
