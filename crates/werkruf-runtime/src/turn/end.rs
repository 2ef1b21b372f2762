//! The end of a turn: commit D.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use werkruf_contract::{
    Annotation, AssistantSnapshot, CallStatus, ChatMessage, ErrorCode, ErrorEvent, EventType, FinishReason, Texts, ToolErrorType,
    TurnError, TurnStatus, Uuid,
};
use werkruf_llm::Message;
use werkruf_store::{NewMessage, StoreError, TurnChange};

use super::state::{Limit, Reply, Stop, Turn};
use crate::answer_format::AnswerFormat;
use crate::call::{TurnScope, log_turn};
use crate::journal::{CommitPoint, Event};
use crate::stored::{StoredFinal, is_provider_run, json, object};
use crate::taint::UntrustedResult;
use crate::transcript_digest::digest_after_answer;

impl Turn {
    /// Writes how the turn ended.
    pub(crate) async fn end(mut self: Box<Self>, ended: Result<Reply, Stop>) -> Result<(), StoreError> {
        let scope = Arc::clone(&self.scope);
        let canceled = matches!(ended, Err(Stop::Canceled(_)));
        let untrusted = self.progress.provider_items.untrusted_so_far();
        match &ended {
            Err(Stop::AwaitingApproval) => return Ok(()),
            Ok(_) | Err(_) => {
                let status = if canceled { CallStatus::Canceled } else { CallStatus::Failed };
                self.progress.provider_items.abort(&scope, status);
                self.progress.provider_items.granted.abort(&scope, status);
            }
        }
        let step = self.progress.step;
        let content = self.content(ended.as_ref().ok());
        let (status, error) = match ended {
            Ok(reply) => {
                self.complete(reply);
                (TurnStatus::Completed, None)
            }
            Err(Stop::Canceled(said)) => {
                if scope.running.is_left() {
                    self.keep_said(&said, &untrusted);
                }
                (TurnStatus::Canceled, Some(canceled_error(&scope.error_texts)))
            }
            Err(Stop::Failed(error)) => (TurnStatus::Failed, Some(error)),
            Err(Stop::OverBudget(refusal)) => (TurnStatus::Failed, Some(refusal.turn_error(&scope.error_texts))),
            Err(Stop::Deadline) => (TurnStatus::Failed, Some(Limit::Deadline.error(&scope.error_texts))),
            Err(Stop::AwaitingApproval) => return Ok(()),
            Err(Stop::Store(error)) => return Err(error),
        };
        let code = error.as_ref().map(|error| error.code.clone());
        if let Some(error) = error {
            fail(&scope, status, step, error);
        }
        scope.journal.commit(CommitPoint::End).await?;
        log_turn(&scope, status, self.progress.finished.len(), code.as_deref());
        scope.end_span(code.as_deref(), content);
        Ok(())
    }

    /// The client left in the middle of an answer: what it has read of it stays in the conversation, marked where the provider has read of strangers.
    fn keep_said(&self, said: &str, untrusted: &[UntrustedResult]) {
        if said.is_empty() {
            return;
        }
        let (scope, step) = (&self.scope, self.progress.step + 1);
        let mut metadata = object(json!({"canceled": true}));
        if !untrusted.is_empty() {
            metadata.insert("untrusted".to_owned(), json!(untrusted));
        }
        scope.journal.stage(assistant_message(scope, said, None, Some(Value::Object(metadata).to_string()), None));
        let snapshot = AssistantSnapshot { canceled: true, ..AssistantSnapshot::text(said.to_owned(), step, scope.turn_id) };
        scope.journal.stage_event(EventType::AssistantSnapshot, &snapshot);
    }

    /// Question and answer, where spans show content.
    fn content(&self, reply: Option<&Reply>) -> (Option<String>, Option<String>) {
        let trace = &self.scope.trace;
        let asked = self.messages.iter().rev().find_map(|message| match message {
            Message::User { content, .. } => Some(content.as_str()),
            Message::System { .. } | Message::Assistant { .. } | Message::Tool { .. } => None,
        });
        let input = trace.content(|content| content.texts(asked.into_iter()));
        (input, reply.and_then(|reply| trace.content(|content| content.answer(&reply.text, &[], reply.finish.as_str()))))
    }

    fn complete(&self, reply: Reply) {
        let scope = &self.scope;
        let Reply { text, annotations, calls, carry, finish, tokens, untrusted } = reply;
        if calls.is_empty() {
            let metadata = assistant_metadata(carry.as_ref(), finish, &untrusted, &annotations);
            scope.journal.stage(assistant_message(scope, &text, None, metadata, tokens));
        }
        let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
        let client = self.client.as_ref();
        // The client has received the text of every step, or of the last one where it asked for a format.
        let received = if AnswerFormat::is_json(&self.options) { &text } else { &self.progress.text };
        let transcript_digest = client.map(|client| digest_after_answer(&client.transcript_digest, received, &ids));
        let (status, step) = (TurnStatus::Completed, self.progress.step);
        scope.journal.stage(TurnChange { status, step, error: None, message: Some(text.clone()), transcript_digest });
        let stored = StoredFinal {
            conversation_id: scope.journal.stream_id(),
            turn_id: scope.turn_id,
            created: self.created,
            status: TurnStatus::Completed,
            message: ChatMessage { annotations, ..ChatMessage::assistant(text) },
            client_calls: calls,
            finish_reason: finish,
            usage: scope.used(),
        };
        let own = self.progress.finished.iter().filter(|call| !is_provider_run(&call.row));
        let results = own.map(|call| call.outcome.call_result(&call.row)).collect();
        let row = json(&stored);
        scope.journal.stage(Event::with_row(EventType::Final, row, &stored.complete((*self.state).clone(), results)));
    }
}

/// What is kept with an answer: what its provider wants to receive again, why it ended and what its text refers to (events are deleted after a
/// while), and what the provider read of strangers.
pub(super) fn assistant_metadata(
    carry: Option<&Value>,
    finish: FinishReason,
    untrusted: &[UntrustedResult],
    annotations: &[Annotation],
) -> Option<String> {
    let mut metadata = Map::new();
    if let Some(carry) = carry {
        metadata.insert("carry".to_owned(), carry.clone());
    }
    if finish != FinishReason::Stop {
        metadata.insert("finish_reason".to_owned(), json!(finish));
    }
    if !untrusted.is_empty() {
        metadata.insert("untrusted".to_owned(), json!(untrusted));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    (!metadata.is_empty()).then(|| Value::Object(metadata).to_string())
}

/// An answer as a message of the history.
pub(super) fn assistant_message(
    scope: &TurnScope,
    text: &str,
    tool_calls: Option<String>,
    metadata: Option<String>,
    tokens: Option<i64>,
) -> NewMessage {
    NewMessage { tool_calls, metadata, tokens, ..NewMessage::new(scope.clock.new_id(), "assistant", text) }
}

/// The error of a turn that was canceled.
pub(crate) fn canceled_error(texts: &Texts) -> TurnError {
    TurnError::new(ToolErrorType::Fatal, ErrorCode::Canceled, texts.text("error-canceled", &[]))
}

/// The error of a turn whose user is gone.
pub(crate) fn unknown_user_error(texts: &Texts) -> TurnError {
    TurnError::new(ToolErrorType::Fatal, ErrorCode::UnknownUser, texts.text("error-unknown_user", &[]))
}

/// Stages the end of a turn without an answer.
pub(crate) fn fail(scope: &TurnScope, status: TurnStatus, step: u32, error: TurnError) {
    let (change, event) = unanswered_end(scope.turn_id, status, step, error);
    scope.journal.stage(change);
    scope.journal.stage_event(EventType::Error, &event);
}

/// The change of the turn row and the event for a turn that ends without an answer.
pub(crate) fn unanswered_end(turn_id: Uuid, status: TurnStatus, step: u32, error: TurnError) -> (TurnChange, ErrorEvent) {
    let stored = Some((json(&error), error.code.clone()));
    let change = TurnChange { status, step, error: stored, message: None, transcript_digest: None };
    let TurnError { kind, code, message, retry_after_ms, cause: _ } = error;
    (change, ErrorEvent { kind, code, message, retry_after_ms, turn_id })
}
