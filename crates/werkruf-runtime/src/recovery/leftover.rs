//! What an earlier process left of a turn, read from its rows.

use std::sync::Arc;

use werkruf_contract::{CallKind, CallStatus, ClientCall, TurnStatus};
use werkruf_llm::{HistoryCall, is_search_action};
use werkruf_store::{ApprovalRow, CallRow, MessageRow, TurnRow};

use crate::call::{CallOutcome, FinishedCall, HistorySlot, StoredCall};
use crate::registry::Registry;
use crate::stored::{is_provider_request, is_provider_run};

/// Takeovers without a committed step in between, after which a turn counts as one that kills its process.
const POISON_TAKEOVERS: u32 = 3;

pub(super) struct Leftover {
    pub(super) turn: TurnRow,
    pub(super) calls: Vec<CallRow>,
    pub(super) history: Vec<MessageRow>,
    pub(super) approvals: Vec<ApprovalRow>,
}

impl Leftover {
    /// Whether the turn was taken over so often without a finished step that it counts as one that kills its process.
    pub(super) const fn is_poison(&self) -> bool {
        self.turn.stalled >= POISON_TAKEOVERS
    }

    /// The result message of a call.
    pub(super) fn result(&self, call_id: &str) -> Option<&MessageRow> {
        self.history.iter().find(|row| row.tool_call_id.as_deref() == Some(call_id))
    }

    /// The calls whose result is in the history, and those that still need one.
    pub(super) fn sorted(&self) -> (Vec<FinishedCall>, Vec<StoredCall<'_>>) {
        let history_calls = self.steps().concat();
        let (mut open, mut finished) = (Vec::new(), Vec::new());
        for row in self.calls.iter().filter(|call| has_result(call)).cloned() {
            let id = history_id(&row, &history_calls);
            let result = id.as_deref().and_then(|id| self.result(id));
            let has_placeholder = result.is_some_and(|result| result.status.as_deref() == Some("pending"));
            let has_result = id.is_none() || (result.is_some() && !has_placeholder);
            let slot = id.map(|id| HistorySlot { id, has_placeholder });
            if row.status.is_terminal() && has_result {
                finished.push(FinishedCall { outcome: Arc::new(CallOutcome::stored(&row)), row, slot });
            } else {
                open.push(self.stored_call(row, slot));
            }
        }
        (finished, open)
    }

    /// A call with its approval.
    pub(super) fn stored_call(&self, row: CallRow, slot: Option<HistorySlot>) -> StoredCall<'_> {
        let announced = slot.as_ref().is_some_and(|slot| slot.has_placeholder) || self.turn.status == TurnStatus::AwaitingApproval;
        let approval = self.approvals.iter().find(|approval| approval.call_id == row.id);
        StoredCall { row, slot, approval, announced }
    }

    /// The calls of the turn's answers, step by step, as the history has them.
    pub(super) fn steps(&self) -> Vec<Vec<HistoryCall>> {
        let own = self.history.iter().filter(|row| row.turn_id == Some(self.turn.id)).filter_map(|row| row.tool_calls.as_deref());
        own.map(|column| HistoryCall::of_column(column).unwrap_or_default()).collect()
    }

    /// The calls of the last step that the client runs: those without a call row.
    pub(super) fn client_calls(&self) -> Vec<ClientCall> {
        let Some(last) = self.steps().pop() else { return Vec::new() };
        let server: Vec<String> = self.calls.iter().filter_map(|call| history_id(call, &last)).collect();
        last.into_iter()
            .filter(|call| !server.contains(&call.id))
            .map(|call| ClientCall { id: call.id, name: call.name, arguments: call.arguments })
            .collect()
    }

    /// The last step of which anything was written, also one whose answer broke off.
    pub(super) fn last_step(&self) -> u32 {
        self.calls.iter().map(|call| call.step).fold(self.turn.step, u32::max)
    }

    /// The provider's own calls that were open when the answer broke off.
    pub(super) fn open_provider_items(&self) -> impl Iterator<Item = &CallRow> {
        self.calls.iter().filter(|row| !has_result(row) && !row.status.is_terminal())
    }

    /// The web searches that the provider had begun for the answer that broke off.
    pub(super) fn begun_searches(&self) -> u32 {
        let open = self.calls.iter().filter(|row| is_provider_run(row) && row.kind == CallKind::WebSearch && row.step > self.turn.step);
        u32::try_from(open.filter(|row| is_search_action(row.raw_arguments.as_deref())).count()).unwrap_or(u32::MAX)
    }

    /// Whether an approval for the provider may have left: then text of its answer may have been published.
    pub(super) fn may_have_granted(&self) -> bool {
        self.calls.iter().any(|row| is_provider_request(row) && row.status == CallStatus::Running)
    }

    /// The text of the turn's answers so far.
    pub(super) fn texts(&self) -> Vec<&str> {
        let own = self.history.iter().filter(|row| row.turn_id == Some(self.turn.id) && row.role == "assistant");
        own.map(|row| row.content.as_str()).collect()
    }

    /// Whether a model request may have been sent. The next request leaves before the last outcomes of a step are durable, so open calls prove
    /// nothing, unless one of them had not even started.
    pub(super) fn may_have_sent_request(&self) -> bool {
        // A step with calls for the client is a turn's last.
        self.client_calls().is_empty() && !self.sorted().1.iter().any(is_unstarted)
    }
}

fn is_unstarted(call: &StoredCall<'_>) -> bool {
    call.row.status == CallStatus::Queued && call.row.dedupe_of.is_none()
}

/// Whether one of the open calls may have ended, and the text of its tool was published as the answer: that of any tool where no model is asked,
/// or where the tool is no longer configured.
pub(super) fn may_have_answered(open: &[StoredCall<'_>], registry: &Registry, needs_no_model: bool) -> bool {
    let answers = |call: &StoredCall<'_>| registry.find(&call.row.tool_name).is_none_or(|entry| entry.spec().answers_directly);
    open.iter().any(|call| !is_unstarted(call) && (needs_no_model || answers(call)))
}

/// The id of a call in the history: our own, else the wire's.
pub(super) fn history_id(call: &CallRow, step: &[HistoryCall]) -> Option<String> {
    let known = |id: &str| step.iter().any(|stored| stored.id == id);
    let own = format!("call_{}", call.id);
    let wire = if is_provider_request(call) { &call.item_id } else { &call.call_id };
    if known(&own) { Some(own) } else { wire.clone().filter(|id| known(id)) }
}

/// Whether the history has a result of the call. What the provider runs without asking is a part of its answer.
fn has_result(call: &CallRow) -> bool {
    !is_provider_run(call) || is_provider_request(call)
}
