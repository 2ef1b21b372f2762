//! Calls that the provider runs after an approval of ours. The approval leaves with a model request, and the answer says what became of it.
//!
//! Invariants: a row says `running` before its approval leaves, and an approval leaves with one request, unless the provider rejected that request.
//! Where no answer says what became of an approval that left, the outcome is unknown, and the model is asked again without it.

use std::sync::Arc;

use serde_json::Value;
use werkruf_contract::{CallStatus, ErrorCode, Failure, Uuid};
use werkruf_llm::{Answer, ApprovalAnswer, Message, ProviderItem};

use super::provider_outcome::{outcome, output};
use crate::call::{
    CallOutcome, FinishedCall, GrantedCall, TurnScope, canceled, display_name, finish_call, interrupted, stage_outcome, start,
};
use crate::stored::is_provider_request;
use crate::taint::UntrustedResult;

#[derive(Default)]
pub(crate) struct GrantedCalls {
    /// Approved, and without an outcome.
    open: Vec<GrantedCall>,
    /// The answers to requests that were not approved.
    denied: Vec<ApprovalAnswer>,
    /// The approvals may have reached the provider.
    sent: bool,
    /// The items of the answer that belong to rows of an earlier answer.
    ran: Vec<(u32, UntrustedResult)>,
    /// Results that are not in the history of the turn yet: the id of the call there, and what the model gets.
    results: Vec<(String, String)>,
    /// Which of them strangers may have written. A request that is sent again has them as results, and its answer does not mention them.
    untrusted: Vec<UntrustedResult>,
}

impl GrantedCalls {
    /// Takes what was decided about the requests of a step.
    pub(crate) fn add(&mut self, granted: Vec<GrantedCall>, finished: &[FinishedCall]) {
        self.open.extend(granted);
        self.denied.extend(finished.iter().filter(|call| is_provider_request(&call.row)).filter_map(denial));
    }

    /// What the next request answers.
    pub(super) fn answers(&self) -> Arc<Vec<ApprovalAnswer>> {
        let approved = self.open.iter().filter_map(|call| call.slot.as_ref());
        let approved = approved.map(|slot| ApprovalAnswer { call_id: slot.id.clone(), approve: true, reason: None });
        Arc::new(approved.chain(self.denied.iter().cloned()).collect())
    }

    /// Ends the calls whose requests came from another provider or model, which is asked no more. `takes_answer` gets what the provider wants to
    /// receive again with the answer that had the request.
    pub(super) fn end_unreachable(&mut self, scope: &TurnScope, messages: &[Message], takes_answer: impl Fn(&Value) -> bool) {
        let reaches = |id: &str| {
            messages.iter().any(|message| match message {
                Message::Assistant { calls, carry: Some(carry), .. } => calls.iter().any(|call| call.id == id) && takes_answer(carry),
                Message::Assistant { .. } | Message::System { .. } | Message::User { .. } | Message::Tool { .. } => false,
            })
        };
        let is_reachable = |call: &GrantedCall| call.slot.as_ref().is_some_and(|slot| reaches(&slot.id));
        let (open, lost): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open).into_iter().partition(is_reachable);
        self.open = open;
        for call in lost {
            self.end(scope, &call, not_run(), CallStatus::Failed);
        }
    }

    /// Stages the start of the calls that have not started; false where there is none.
    pub(super) fn stage_starts(&mut self, scope: &TurnScope) -> bool {
        let mut any = false;
        for call in self.open.iter_mut().filter(|call| call.row.status == CallStatus::Queued) {
            start(scope, &mut call.row);
            any = true;
        }
        any
    }

    /// The request may have reached the provider.
    pub(super) const fn note_sent(&mut self) {
        self.sent = true;
    }

    /// Whether an item may belong to one of the calls. An item that only started need not name its request.
    pub(super) fn may_be(&self, item: &ProviderItem) -> bool {
        self.place_of(item).is_some() || self.open.iter().any(|call| is_nameless(item, &call.row.tool_name))
    }

    /// Stages the end of the call that an item belongs to; false where it belongs to none.
    pub(super) fn finish(&mut self, scope: &TurnScope, item: &ProviderItem) -> bool {
        let Some(place) = self.place_of(item) else { return false };
        let call = self.open.remove(place);
        self.ran.push((item.output_index, UntrustedResult::of(&call.row)));
        if is_unclear(item) {
            self.end(scope, &call, interrupted().may_have_happened(), CallStatus::Failed);
            return true;
        }
        let GrantedCall { row, slot } = call;
        let outcome = outcome(scope, item);
        let mut end = outcome.call_end(&row);
        end.response = output(item);
        finish_call(scope, &row, slot.as_ref(), &outcome, end, None);
        self.untrusted.push(UntrustedResult::of(&row));
        self.note_result(scope, &GrantedCall { row, slot }, &outcome);
        true
    }

    /// The answer is complete: stages what it says of the calls. A call that it does not mention was not run.
    pub(super) fn settle(&mut self, scope: &TurnScope, answer: &Answer) {
        for item in &answer.items {
            self.finish(scope, &scope.setup.redaction.provider_item(item));
        }
        let unclear = |name: &str| !answer.executable || answer.items.iter().any(|item| is_nameless(item, name));
        for call in std::mem::take(&mut self.open) {
            let failure = if unclear(&call.row.tool_name) { interrupted().may_have_happened() } else { not_run() };
            self.end(scope, &call, failure, CallStatus::Failed);
        }
        (self.sent, self.denied) = (false, Vec::new());
    }

    /// No answer came to the request that had the approvals: they are not sent again. False where none had left.
    pub(super) fn give_up_sent(&mut self, scope: &TurnScope) -> bool {
        if std::mem::take(&mut self.sent) {
            for call in std::mem::take(&mut self.open) {
                self.end(scope, &call, interrupted().may_have_happened(), CallStatus::Failed);
            }
            return true;
        }
        false
    }

    /// The turn ends: stages the end of the calls that are left.
    pub(super) fn abort(&mut self, scope: &TurnScope, status: CallStatus) {
        let failure = match (status, self.sent) {
            (CallStatus::Canceled, true) => canceled().may_have_happened(),
            (CallStatus::Canceled, false) => canceled().nothing_happened(),
            (_, true) => interrupted().may_have_happened(),
            (_, false) => not_run(),
        };
        for call in std::mem::take(&mut self.open) {
            self.end(scope, &call, failure.clone(), status);
        }
    }

    /// The calls that the provider has run, or may have run, for an answer that is not complete.
    pub(super) fn untrusted_so_far(&self) -> impl Iterator<Item = UntrustedResult> {
        let open = self.open.iter().filter(|_| self.sent).map(|call| UntrustedResult::of(&call.row));
        self.ran.iter().map(|(_, ran)| ran.clone()).chain(open)
    }

    /// The row of an item of the last answer.
    pub(super) fn row_of(&self, output_index: u32) -> Option<Uuid> {
        self.ran.iter().find(|(index, _)| *index == output_index).and_then(|(_, ran)| ran.job_id)
    }

    /// A new answer is requested.
    pub(super) fn forget_items(&mut self) {
        self.ran.clear();
    }

    /// Puts the results into a history that has placeholders in their place.
    pub(super) fn put_results(&self, messages: &mut Arc<Vec<Message>>) {
        if self.results.is_empty() {
            return;
        }
        for message in Arc::make_mut(messages) {
            if let Message::Tool { call_id, content, .. } = message
                && let Some((_, result)) = self.results.iter().find(|(id, _)| id == call_id)
            {
                content.clone_from(result);
            }
        }
    }

    /// The history of the turn has the results. Returns those that strangers may have written.
    pub(super) fn take_untrusted(&mut self) -> Vec<UntrustedResult> {
        self.results.clear();
        std::mem::take(&mut self.untrusted)
    }

    fn place_of(&self, item: &ProviderItem) -> Option<usize> {
        let request = item.approval_request_id.as_ref()?;
        self.open.iter().position(|call| call.row.item_id.as_ref() == Some(request))
    }

    fn end(&mut self, scope: &TurnScope, call: &GrantedCall, failure: Failure, status: CallStatus) {
        let GrantedCall { row, slot } = call;
        let outcome = CallOutcome::failed(failure, status, row.effect, row.attempt, scope.clock.now()).with_message(&scope.texts);
        stage_outcome(scope, row, slot.as_ref(), &outcome);
        self.note_result(scope, call, &outcome);
    }

    fn note_result(&mut self, scope: &TurnScope, call: &GrantedCall, outcome: &CallOutcome) {
        if let Some(slot) = &call.slot {
            self.results.push((slot.id.clone(), outcome.for_model(&call.row, scope.result_limit).content));
        }
    }
}

/// Whether an item runs a call of this name and does not say for which request.
fn is_nameless(item: &ProviderItem, tool: &str) -> bool {
    let names = |name: &str| display_name(name) == tool;
    item.kind == "mcp_call" && item.approval_request_id.is_none() && item.name.as_deref().is_some_and(names)
}

/// Whether an item does not say what its call did: the call had not ended, or the tool itself said nothing. Only the tool's own word, or a rejected
/// request, is a failure without effect.
fn is_unclear(item: &ProviderItem) -> bool {
    let Some(error) = &item.error else {
        return item.output.is_none() && !matches!(item.status.as_deref(), Some("completed" | "failed"));
    };
    match error["type"].as_str() {
        Some("http_error") => !error["code"].as_u64().is_some_and(|status| (400..500).contains(&status) && status != 408),
        Some(kind) => kind.contains("protocol_error"),
        None => false,
    }
}

fn not_run() -> Failure {
    Failure::upstream(ErrorCode::ProviderCallNotRun, "").nothing_happened()
}

/// The answer to a request that an approver denied, or that nobody decided in time.
fn denial(call: &FinishedCall) -> Option<ApprovalAnswer> {
    let failure = call.outcome.result.as_ref().err()?;
    let denied = failure.is(ErrorCode::ApprovalDenied) || failure.is(ErrorCode::ApprovalExpired);
    let call_id = call.slot.as_ref().filter(|_| denied)?.id.clone();
    Some(ApprovalAnswer { call_id, approve: false, reason: Some(failure.message.clone()) })
}
