//! The JSON view of a row of `tool_calls`, with every column.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use werkruf_contract::{CallKind, CallStatus, Effect, Runner, Uuid};
use werkruf_store::CallRow;

use super::view::{Iso, error_detail, raw};
use crate::routing::ToSchema;

/// A tool call.
#[derive(Serialize, ToSchema)]
#[schema(as = ToolCall)]
pub(crate) struct CallView<'a> {
    id: Uuid,
    tenant_id: Uuid,
    conversation_id: Option<Uuid>,
    turn_id: Uuid,
    step: u32,
    output_index: u32,
    response_id: Option<&'a str>,
    #[schema(value_type = String)]
    kind: CallKind,
    /// Who runs the call: `server`, `provider` or `client`.
    #[schema(value_type = String)]
    runner: Runner,
    tool_name: &'a str,
    /// The call id that the model server sent.
    call_id: Option<&'a str>,
    /// The item id that the model server sent.
    item_id: Option<&'a str>,
    #[schema(value_type = String)]
    status: CallStatus,
    /// The arguments that the tool was called with.
    #[schema(value_type = Option<Object>)]
    request: Option<&'a RawValue>,
    /// The arguments as the model sent them.
    raw_arguments: Option<&'a str>,
    /// Repairs of the arguments: `[{path, from, to, rule}]`
    #[schema(value_type = Option<Vec<Object>>)]
    repairs: Option<&'a RawValue>,
    /// The tool's `data`.
    #[schema(value_type = Option<Object>)]
    response: Option<&'a RawValue>,
    error: Option<&'a str>,
    error_type: Option<&'a str>,
    error_code: Option<&'a str>,
    #[schema(value_type = Option<Object>)]
    error_detail: Option<Value>,
    #[schema(value_type = String)]
    effect: Effect,
    /// Counts from 1; 0 if the call was never sent.
    attempt: u32,
    cache_hit: bool,
    dedupe_key: Option<&'a str>,
    dedupe_of: Option<Uuid>,
    retry_of: Option<Uuid>,
    idempotency_key: Option<&'a str>,
    /// `{needs, granted, role, permission, scope}`: the role and the permission that decided.
    #[schema(value_type = Option<Object>)]
    permission: Option<&'a RawValue>,
    /// The `ToolContext` without `auth`.
    #[schema(value_type = Object)]
    context: Option<&'a RawValue>,
    trace_id: Option<&'a str>,
    run_id: Option<&'a str>,
    ingestion_run_id: Option<&'a str>,
    workflow_id: Option<&'a str>,
    case_id: Option<&'a str>,
    #[schema(value_type = Option<Object>)]
    meta: Option<&'a RawValue>,
    /// The untrusted results that the model had read before the call: `[{tool, job_id}]`; null if there were none.
    #[schema(value_type = Option<Vec<Object>>)]
    taint: Option<&'a RawValue>,
    took_ms: u64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Iso,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Iso>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Iso>,
}

impl<'a> CallView<'a> {
    /// Builds the view. Only an admin sees the cause of an error.
    pub(crate) fn new(row: &'a CallRow, admin: bool) -> Self {
        Self {
            id: row.id,
            tenant_id: row.tenant_id,
            conversation_id: row.conversation_id,
            turn_id: row.turn_id,
            step: row.step,
            output_index: row.output_index,
            response_id: row.response_id.as_deref(),
            kind: row.kind,
            runner: row.runner,
            tool_name: &row.tool_name,
            call_id: row.call_id.as_deref(),
            item_id: row.item_id.as_deref(),
            status: row.status,
            request: raw(row.request.as_deref()),
            raw_arguments: row.raw_arguments.as_deref(),
            repairs: raw(row.repairs.as_deref()),
            response: raw(row.response.as_deref()),
            error: row.error.as_deref(),
            error_type: row.error_type.as_deref(),
            error_code: row.error_code.as_deref(),
            error_detail: error_detail(row.error_detail.as_deref(), admin),
            effect: row.effect,
            attempt: row.attempt,
            cache_hit: row.cache_hit,
            dedupe_key: row.dedupe_key.as_deref(),
            dedupe_of: row.dedupe_of,
            retry_of: row.retry_of,
            idempotency_key: row.idempotency_key.as_deref(),
            permission: raw(row.permission.as_deref()),
            context: raw(Some(&row.context)),
            trace_id: row.trace_id.as_deref(),
            run_id: row.run_id.as_deref(),
            ingestion_run_id: row.ingestion_run_id.as_deref(),
            workflow_id: row.workflow_id.as_deref(),
            case_id: row.case_id.as_deref(),
            meta: raw(row.meta.as_deref()),
            taint: raw(row.taint.as_deref()),
            took_ms: row.took_ms(),
            created_at: Iso(row.created_at),
            updated_at: Iso(row.updated_at),
            started_at: row.started_at.map(Iso),
            finished_at: row.finished_at.map(Iso),
        }
    }
}
