//! What is written of a call as it begins and ends: its row, the model's message, the state's patch, the client's event.

use serde_json::{Map, Value, json};
use werkruf_contract::{CallStatus, Effect, EventType, ToolContext, ToolErrorDetail, ToolFinished, ToolStarted};
use werkruf_store::{CallRow, CallStart, NewMessage, Replacement};

use crate::corridor::{Arguments, Asked};
use crate::ground::{Draft, Ground};
use crate::outcome::Ended;

/// Where a call's result stands in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) id: String,
    /// A placeholder stands there.
    pub(crate) taken: bool,
}

/// The row of a call nobody has judged yet.
pub(crate) fn new_row(ground: &Ground, step: u32, context: &ToolContext, asked: &Asked) -> CallRow {
    let id = asked.job_id;
    let now = ground.clock.now();
    let mut context = context.clone();
    context.invocation_id = id;
    context.now_iso = now;
    CallRow {
        id,
        tenant_id: ground.fence.tenant_id,
        conversation_id: ground.conversation_id,
        turn_id: ground.turn_id,
        step,
        output_index: asked.output_index,
        response_id: asked.response_id.clone(),
        kind: asked.kind,
        tool_name: shown(&asked.name),
        call_id: asked.call_id.clone(),
        item_id: asked.item_id.clone(),
        status: CallStatus::Queued,
        request: None,
        raw_arguments: match &asked.arguments {
            Arguments::Raw(raw) => Some(raw.clone()),
            Arguments::Given(value) => Some(value.to_string()),
        },
        repairs: None,
        response: None,
        error: None,
        error_type: None,
        error_code: None,
        error_detail: None,
        effect: Effect::Read,
        attempt: 0,
        cache_hit: false,
        dedupe_key: None,
        dedupe_of: None,
        retry_of: asked.retry_of,
        idempotency_key: None,
        permission: None,
        trace_id: Some(context.trace_id.clone()),
        run_id: context.run_id.clone(),
        ingestion_run_id: context.ingestion_run_id.clone(),
        workflow_id: context.workflow_id.clone(),
        case_id: context.case_id.clone(),
        context: serde_json::to_string(&context).unwrap_or_else(|_| "{}".to_owned()),
        meta: None,
        created_at: now,
        updated_at: now,
        started_at: None,
        finished_at: None,
    }
}

/// A queued call begins: durable with the draft, before it is sent.
pub(crate) fn start(ground: &Ground, draft: &mut Draft, row: &mut CallRow) {
    let now = ground.clock.now();
    row.status = CallStatus::Running;
    row.started_at = Some(now);
    row.attempt = 1;
    draft.write.starts.push(CallStart { id: row.id, started_at: now });
    announce(draft, row);
}

/// The event that a call has begun.
pub(crate) fn announce(draft: &mut Draft, row: &CallRow) {
    draft.event(EventType::ToolStarted, &started(row));
}

/// What is said of a call that begins.
pub(crate) fn started(row: &CallRow) -> ToolStarted {
    ToolStarted {
        tool: row.tool_name.clone(),
        job_id: row.id,
        call_id: row.call_id.clone(),
        arguments: row.request.as_deref().and_then(|text| serde_json::from_str(text).ok()),
    }
}

/// An outcome: the row's end, the model's message, the state's patch, the client's event.
pub(crate) fn record(ground: &Ground, draft: &mut Draft, row: &CallRow, seat: Option<&Seat>, ended: &Ended) {
    if !row.status.is_terminal() {
        draft.write.ends.push(ended.end(row.id));
    }
    if let Some(seat) = seat {
        let (content, status) = ended.for_model();
        if seat.taken {
            draft.write.replacements.push(Replacement { tool_call_id: seat.id.clone(), content, status });
        } else {
            draft.write.messages.push(NewMessage {
                id: ground.clock.new_id(),
                role: "tool",
                content,
                tool_calls: None,
                tool_call_id: Some(seat.id.clone()),
                tool_name: Some(row.tool_name.clone()),
                status: Some(status),
                metadata: None,
                tokens: None,
            });
        }
    }
    if let Ok(success) = &ended.result
        && let Some(patch) = &success.state_patch
    {
        ground.debug("tool_pipeline_state_patch", || object(json!({"tool": row.tool_name, "job_id": row.id, "patch": patch})));
        draft.write.state_patches.push(patch.clone());
    }
    let took_ms = ended.took_ms(row);
    ground.debug("tool_pipeline_execution", || {
        object(json!({"tool": row.tool_name, "job_id": row.id, "status": ended.status, "took_ms": took_ms, "attempt": ended.attempt,
            "cache_hit": ended.cache_hit, "error": ended.detail().map(ToolErrorDetail::for_readers)}))
    });
    log(ground, row, ended, took_ms);
    let finished = ToolFinished {
        tool: row.tool_name.clone(),
        job_id: row.id,
        call_id: row.call_id.clone(),
        status: ended.status,
        took_ms,
        cache_hit: ended.cache_hit,
    };
    draft.event(EventType::ToolFinished, &finished);
}

fn log(ground: &Ground, row: &CallRow, ended: &Ended, took_ms: u64) {
    let conversation_id = ground.conversation_id.map(|id| id.to_string()).unwrap_or_default();
    let (turn_id, job_id, function, status) = (ground.turn_id, row.id, row.tool_name.as_str(), ended.status);
    match &ended.result {
        Ok(_) => tracing::info!(target: "werkruf::function_calling", %conversation_id, %turn_id, %job_id, function, %status, took_ms,
            "{function} {status} in {took_ms} ms"),
        Err(failure) => {
            tracing::warn!(target: "werkruf::function_calling", %conversation_id, %turn_id, %job_id, function, %status, took_ms,
            error = %failure.code, cause = failure.cause.as_deref().unwrap_or(""), "{function} {status}: {}", failure.code)
        }
    }
}

/// A row that is over before it is written.
pub(crate) fn conclude(row: &mut CallRow, ended: &Ended) {
    let end = ended.end(row.id);
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

/// A name the model made up may be anything; the registry keeps what fits a line.
pub(crate) fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
