//! A turn whose first call is known without a model request: a keyword of its channel, or an offer of a tool that the message accepts. A keyword
//! is answered without any model: the tool's own text is the answer.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value;
use werkruf_contract::{CallKind, ErrorCode, State, Texts, ToolErrorType, TurnError, merge_state};
use werkruf_llm::{Answer, Message, ToolCall};

use super::state::Turn;
use crate::budgets::moment;
use crate::call::{CallOutcome, FinishedCall};
use crate::channel::{DirectCall, OverLimit};
use crate::journal::Change;

impl Turn {
    /// The call that the channel gives in place of a model request.
    fn keyword(&self) -> Option<&DirectCall> {
        self.scope.inbound.as_ref().and_then(|inbound| inbound.direct.as_ref())
    }

    /// Whether the turn ends without any model request.
    pub(crate) fn needs_no_model(&self) -> bool {
        self.scope.inbound.as_ref().is_some_and(|inbound| inbound.needs_no_model())
    }

    /// The error of a turn whose sender wrote too many messages, or has no budget left.
    pub(super) fn over_limit(&self) -> Option<TurnError> {
        let OverLimit { retry_after_ms, code, .. } = self.scope.inbound.as_ref()?.over_limit?;
        let code = code.unwrap_or(ErrorCode::TooManyTurns);
        let wait = SignedDuration::from_millis(i64::try_from(retry_after_ms).unwrap_or_default());
        let until = moment(self.scope.clock.now() + wait);
        let message = self.scope.texts.text(&format!("error-{code}"), &[("until", until.into())]);
        let error = TurnError::new(ToolErrorType::RateLimit, code, message);
        Some(TurnError { retry_after_ms: Some(retry_after_ms).filter(|wait| *wait > 0), ..error })
    }

    /// The call that the message stands for, in the form of a model's answer. Any message that accepts no offer ends all offers, with the next
    /// commit.
    pub(super) fn given_call(&mut self) -> Option<Answer> {
        if self.progress.step > 0 {
            return None;
        }
        if let Some(DirectCall { tool, arguments }) = self.keyword().cloned() {
            self.end_offers();
            return Some(answer_with_call(tool, &arguments));
        }
        let is_message = matches!(self.messages.last(), Some(Message::User { .. }));
        if self.client.is_some() || self.progress.limit.is_some() || !is_message {
            return None;
        }
        let accepted = self.accepted_offer();
        if accepted.is_none() {
            self.end_offers();
        }
        accepted
    }

    fn accepted_offer(&self) -> Option<Answer> {
        let Some(Message::User { content, .. }) = self.messages.last() else { return None };
        let scope = &self.scope;
        let usable = |name: &str| self.offer.definitions.iter().any(|tool| tool.name == name);
        let mut tools = scope.setup.registry.all_for(scope.caller.principal.tenant()).filter(|entry| usable(&entry.spec().name));
        let (name, arguments) = tools.find_map(|entry| Some((entry.spec().name.to_string(), entry.tool.claims(&self.state, content)?)))?;
        Some(answer_with_call(name, &arguments))
    }

    fn end_offers(&mut self) {
        let scope = Arc::clone(&self.scope);
        let ended: State = scope
            .setup
            .registry
            .all_for(scope.caller.principal.tenant())
            .flat_map(|entry| entry.tool.offers())
            .filter(|field| self.state.contains_key(**field))
            .map(|field| ((*field).to_owned(), Value::Null))
            .collect();
        if !ended.is_empty() {
            merge_state(Arc::make_mut(&mut self.state), ended.clone());
            scope.journal.stage(Change::StatePatch(ended));
        }
    }

    /// The answer of a keyword's turn whose call has ended, in this process or an earlier one.
    pub(super) fn keyword_answer(&self) -> Option<String> {
        self.keyword()?;
        self.progress.finished.last().map(|call| call_text(&self.scope.texts, call))
    }
}

/// What a person reads of a call: the tool's own text, or what went wrong.
fn call_text(texts: &Texts, FinishedCall { row, outcome, .. }: &FinishedCall) -> String {
    let CallOutcome { result, .. } = &**outcome;
    match result {
        Ok(success) => success.own_text().unwrap_or_else(|| texts.text("call-done", &[("tool", row.tool_name.as_str().into())])),
        Err(failure) => texts.call_error(Some(failure.kind), &failure.code, &failure.message),
    }
}

fn answer_with_call(name: String, arguments: &Value) -> Answer {
    let call = ToolCall {
        kind: CallKind::Function,
        item_id: None,
        call_id: None,
        output_index: 0,
        name,
        arguments: arguments.to_string(),
        status: None,
        server_label: None,
    };
    Answer { calls: vec![call], executable: true, ..Answer::default() }
}
