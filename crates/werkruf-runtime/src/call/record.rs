//! What is written of a call when it starts and when it ends: its row, the model's message, the state patch, the client's event.

use serde_json::json;
use werkruf_contract::{CallStatus, EventType, Runner, State, ToolContext, ToolErrorDetail, ToolStarted};
use werkruf_store::{CallEnd, CallRow, CallStart, NewCall, NewMessage, Replacement};

use super::batch::HistorySlot;
use super::log::log_call;
use super::outcome::{CallOutcome, ModelResult};
use super::request::{Arguments, CallRequest};
use super::scope::TurnScope;
use super::span::end_span;
use crate::journal::Change;
use crate::stored::object;

/// The row of a call before the pipeline has decided on it.
pub(crate) fn call_row(scope: &TurnScope, step: u32, context: &ToolContext, request: &CallRequest) -> CallRow {
    let id = request.job_id;
    let now = scope.clock.now();
    let mut context = context.clone();
    context.invocation_id = id;
    context.now_iso = now;
    CallRow {
        response_id: request.response_id.clone(),
        kind: request.kind,
        call_id: request.call_id.clone(),
        item_id: request.item_id.clone(),
        raw_arguments: match &request.arguments {
            Arguments::Raw(raw) => Some(raw.clone()),
            Arguments::Given(value) => Some(value.to_string()),
        },
        retry_of: request.retry_of,
        trace_id: Some(context.trace_id.clone()),
        run_id: context.run_id.clone(),
        ingestion_run_id: context.ingestion_run_id.clone(),
        workflow_id: context.workflow_id.clone(),
        case_id: context.case_id.clone(),
        context: serde_json::to_string(&context).unwrap_or_else(|_| "{}".to_owned()),
        ..CallRow::queued(NewCall {
            id,
            tenant_id: scope.tenant_id(),
            conversation_id: scope.conversation_id,
            turn_id: scope.turn_id,
            step,
            output_index: request.output_index,
            tool_name: display_name(&request.name),
            now,
        })
    }
}

/// Starts a queued call: durable with the next commit, before it is sent.
pub(crate) fn start(scope: &TurnScope, row: &mut CallRow) {
    let now = scope.clock.now();
    row.status = CallStatus::Running;
    row.started_at = Some(now);
    row.attempt = 1;
    scope.journal.stage(CallStart { id: row.id, started_at: now });
    announce(scope, row);
}

/// Stages the event that a call has started.
pub(crate) fn announce(scope: &TurnScope, row: &CallRow) {
    scope.journal.stage_event(EventType::ToolStarted, &tool_started(row));
}

/// The `tool_started` event of a call.
pub(crate) fn tool_started(row: &CallRow) -> ToolStarted {
    ToolStarted {
        tool: row.tool_name.clone(),
        job_id: row.id,
        call_id: row.call_id.clone(),
        arguments: row.request.as_deref().and_then(|text| serde_json::from_str(text).ok()),
    }
}

/// Stages an outcome: the row's end, the model's message, the state patch, the client's event.
pub(crate) fn stage_outcome(scope: &TurnScope, row: &CallRow, slot: Option<&HistorySlot>, outcome: &CallOutcome) {
    let patch = outcome.result.as_ref().ok().and_then(|success| success.state_patch.clone());
    finish_call(scope, row, slot, outcome, outcome.call_end(row), patch);
}

/// The same, with the row's end and the state patch given.
pub(crate) fn finish_call(
    scope: &TurnScope,
    row: &CallRow,
    slot: Option<&HistorySlot>,
    outcome: &CallOutcome,
    end: CallEnd,
    patch: Option<State>,
) {
    let journal = &scope.journal;
    if !row.status.is_terminal() {
        journal.stage(end);
    }
    if let Some(slot) = slot {
        let result = outcome.for_model(row, scope.result_limit);
        let metadata = outcome.metadata(row, &result);
        let ModelResult { content, status, .. } = result;
        if slot.has_placeholder {
            journal.stage(Replacement { tool_call_id: slot.id.clone(), content, status, metadata });
        } else {
            let result = NewMessage::result(scope.clock.new_id(), slot.id.as_str(), row.tool_name.as_str(), content, status);
            journal.stage(NewMessage { metadata, ..result });
        }
    }
    if let Some(patch) = patch {
        scope.debug("tool_pipeline_state_patch", || object(json!({"tool": row.tool_name, "job_id": row.id, "patch": patch})));
        journal.stage(Change::StatePatch(patch));
    }
    let took_ms = outcome.took_ms(row);
    scope.debug("tool_pipeline_execution", || {
        object(json!({"tool": row.tool_name, "job_id": row.id, "status": outcome.status, "took_ms": took_ms, "attempt": outcome.attempt,
            "cache_hit": outcome.cache_hit, "error": outcome.detail().map(ToolErrorDetail::for_readers)}))
    });
    log_call(scope, row, outcome, took_ms);
    count(scope, row, outcome.status, took_ms);
    end_span(scope, row, outcome);
    journal.stage_event(EventType::ToolFinished, &outcome.finished_event(row));
}

/// Counts a call by the name in the configuration; one that the provider ran by its kind, because the provider chooses the name.
fn count(scope: &TurnScope, row: &CallRow, status: CallStatus, took_ms: u64) {
    let configured = || scope.setup.registry.find(&row.tool_name).map(|entry| &*entry.spec().name);
    let name = if row.runner == Runner::Provider { Some(row.kind.as_str()) } else { configured() };
    scope.models.metrics.call_ended(name, status, took_ms);
}

/// Writes an outcome into a row.
pub(crate) fn apply_outcome(row: &mut CallRow, outcome: &CallOutcome) {
    let end = outcome.call_end(row);
    row.status = end.status;
    row.response = end.response;
    row.meta = end.meta;
    row.error = end.error;
    row.error_type = end.error_type;
    row.error_code = end.error_code;
    row.error_detail = end.error_detail;
    row.cache_hit = end.cache_hit;
    row.finished_at = Some(end.finished_at);
}

/// A tool name as the row keeps it: a model may invent any text.
pub(crate) fn display_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}
