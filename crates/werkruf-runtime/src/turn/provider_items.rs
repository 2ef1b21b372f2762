//! Calls that the provider runs itself (web searches, MCP calls), recorded like our own while they happen. Nothing of them is sent by us; those for
//! which the provider asked before are in `granted_calls`.
//!
//! Invariants: clients learn of such a call only after its row is durable. Every row ends: with its item, with the answer, or when the answer is
//! abandoned. A position belongs to one answer, so an abandoned answer that has rows keeps its step, and the next answer gets another one.

use serde_json::Value;
use werkruf_contract::{CallStatus, ErrorCode, Failure, Runner, ToolContext, ToolErrorType};
use werkruf_llm::{Answer, ProviderItem};
use werkruf_store::{CallRow, ProviderCallUpdate};

use super::granted_calls::GrantedCalls;
use super::provider_outcome::{outcome, output};
use crate::call::{
    Arguments, CallOutcome, CallRequest, TurnScope, announce, apply_outcome, call_row, display_name, finish_call, stage_outcome,
};
use crate::taint::UntrustedResult;

/// The provider's calls of the answer that is being received.
#[derive(Default)]
pub(crate) struct ProviderItems {
    rows: Vec<CallRow>,
    abandoned_steps: u32,
    /// Calls for which the provider had asked before.
    pub(crate) granted: GrantedCalls,
}

impl ProviderItems {
    /// Whether the answer has no rows.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Answers that were abandoned after they had rows, since the last call of [`take_abandoned_steps`](Self::take_abandoned_steps).
    pub(super) const fn abandoned_steps(&self) -> u32 {
        self.abandoned_steps
    }

    pub(super) const fn abandon_step(&mut self) {
        self.abandoned_steps += 1;
    }

    pub(super) const fn take_abandoned_steps(&mut self) -> u32 {
        std::mem::replace(&mut self.abandoned_steps, 0)
    }

    /// Whether a call for us has the output index of a call that the provider started.
    pub(super) fn clash_with(&self, answer: &Answer) -> bool {
        answer.calls.iter().any(|call| self.rows.iter().any(|row| row.output_index == call.output_index))
    }

    /// Stages the start of an item; false where it is not a call, or is known.
    pub(super) fn start(&mut self, scope: &TurnScope, step: u32, context: &ToolContext, item: &ProviderItem) -> bool {
        if self.rows.iter().any(|row| row.output_index == item.output_index) || self.granted.may_be(item) {
            return false;
        }
        let Some(row) = running_row(scope, step, context, &scope.setup.redaction.provider_item(item)) else { return false };
        announce(scope, &row);
        scope.journal.stage(row.clone());
        self.rows.push(row);
        true
    }

    /// Stages the end of an item; false where no start was recorded.
    pub(super) fn finish(&mut self, scope: &TurnScope, item: &ProviderItem) -> bool {
        let item = scope.setup.redaction.provider_item(item);
        if self.granted.finish(scope, &item) {
            return true;
        }
        let row = self.rows.iter_mut().find(|row| row.output_index == item.output_index && !row.status.is_terminal());
        row.map(|row| finish_row(scope, row, &item)).is_some()
    }

    /// The answer is complete: stages what it says of the provider's calls, also of those that were not announced.
    pub(super) fn settle(&mut self, scope: &TurnScope, step: u32, context: &ToolContext, answer: &Answer) {
        let redaction = &scope.setup.redaction;
        for item in answer.items.iter().filter(|item| self.granted.row_of(item.output_index).is_none()) {
            match self.rows.iter_mut().find(|row| row.output_index == item.output_index) {
                Some(row) if row.status.is_terminal() => {}
                Some(row) => finish_row(scope, row, &redaction.provider_item(item)),
                None => {
                    let item = redaction.provider_item(item);
                    let Some(mut row) = running_row(scope, step, context, &item) else { continue };
                    announce(scope, &row);
                    let outcome = outcome(scope, &item);
                    apply_outcome(&mut row, &outcome);
                    row.response = output(&item);
                    stage_outcome(scope, &row, None, &outcome);
                    scope.journal.stage(row);
                }
            }
        }
        self.abort(scope, CallStatus::Failed);
    }

    /// What the provider did for this answer. It reads the web, or other servers, while the model writes: so also the calls that the answer
    /// requests are made after it.
    pub(super) fn untrusted(&self, answer: &Answer) -> Vec<UntrustedResult> {
        let of_answer = |item: &ProviderItem| self.rows.iter().find(|row| row.output_index == item.output_index).map(|row| row.id);
        let row_of = |item: &ProviderItem| of_answer(item).or_else(|| self.granted.row_of(item.output_index));
        let ran = answer.items.iter().filter(|item| item.call_kind().is_some());
        ran.map(|item| UntrustedResult { tool: display_name(&name(item)), job_id: row_of(item) }).collect()
    }

    /// What the provider did so far for an answer that is not complete.
    pub(super) fn untrusted_so_far(&self) -> Vec<UntrustedResult> {
        self.rows.iter().map(UntrustedResult::of).chain(self.granted.untrusted_so_far()).collect()
    }

    /// Ends the rows that are still open.
    pub(super) fn abort(&mut self, scope: &TurnScope, status: CallStatus) {
        for row in self.rows.drain(..).filter(|row| !row.status.is_terminal()) {
            abort_item(scope, &row, status);
        }
    }
}

/// Ends the row of a provider's call whose answer broke off.
pub(crate) fn abort_item(scope: &TurnScope, row: &CallRow, status: CallStatus) {
    let code = if status == CallStatus::Canceled { ErrorCode::Canceled } else { ErrorCode::Interrupted };
    let failure = Failure::new(ToolErrorType::Upstream, code, "The answer broke off while the provider ran this.");
    stage_outcome(scope, row, None, &CallOutcome::failed(failure, status, row.effect, row.attempt, scope.clock.now()));
}

fn running_row(scope: &TurnScope, step: u32, context: &ToolContext, item: &ProviderItem) -> Option<CallRow> {
    let arguments = Arguments::Raw(item.arguments.clone().unwrap_or_default());
    let request = CallRequest {
        kind: item.call_kind()?,
        item_id: item.item_id.clone(),
        call_id: item.call_id.clone(),
        response_id: item.response_id.clone(),
        output_index: item.output_index,
        ..CallRequest::new(scope.clock.new_id(), name(item), arguments)
    };
    let mut row = call_row(scope, step, context, &request);
    row.runner = Runner::Provider;
    row.request = json_arguments(item);
    row.status = CallStatus::Running;
    row.attempt = 1;
    row.started_at = Some(row.created_at);
    Some(row)
}

fn name(item: &ProviderItem) -> String {
    item.name.clone().unwrap_or_else(|| item.kind.clone())
}

fn json_arguments(item: &ProviderItem) -> Option<String> {
    item.arguments.clone().filter(|text| serde_json::from_str::<Value>(text).is_ok())
}

/// Ends a row. What the finished item says replaces what the started item said.
fn finish_row(scope: &TurnScope, row: &mut CallRow, item: &ProviderItem) {
    let update = ProviderCallUpdate {
        id: row.id,
        tool_name: display_name(&name(item)),
        response_id: item.response_id.clone(),
        item_id: item.item_id.clone(),
        call_id: item.call_id.clone(),
        request: json_arguments(item),
        raw_arguments: item.arguments.clone(),
    };
    row.tool_name.clone_from(&update.tool_name);
    row.call_id = update.call_id.clone().or(row.call_id.take());
    scope.journal.stage(update);
    let outcome = outcome(scope, item);
    let mut end = outcome.call_end(row);
    end.response = output(item);
    finish_call(scope, row, None, &outcome, end, None);
    row.status = outcome.status;
}
