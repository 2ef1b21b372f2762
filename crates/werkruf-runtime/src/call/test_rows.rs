//! Rows for tests, with every column.

use werkruf_contract::{CallKind, CallStatus, Effect, Uuid};
use werkruf_store::CallRow;

/// A running call of a tool that may be sent only once.
pub(crate) fn once_call() -> CallRow {
    let at = jiff::Timestamp::UNIX_EPOCH;
    CallRow {
        id: Uuid::from_u128(9),
        tenant_id: Uuid::nil(),
        conversation_id: Some(Uuid::from_u128(1)),
        turn_id: Uuid::nil(),
        step: 1,
        output_index: 0,
        response_id: None,
        kind: CallKind::Function,
        tool_name: "pay".to_owned(),
        call_id: None,
        item_id: None,
        status: CallStatus::Running,
        request: None,
        raw_arguments: None,
        repairs: None,
        response: None,
        error: None,
        error_type: None,
        error_code: None,
        error_detail: None,
        effect: Effect::Once,
        attempt: 1,
        cache_hit: false,
        dedupe_key: None,
        dedupe_of: None,
        retry_of: None,
        idempotency_key: None,
        permission: None,
        context: String::new(),
        trace_id: None,
        run_id: None,
        ingestion_run_id: None,
        workflow_id: None,
        case_id: None,
        meta: None,
        created_at: at,
        updated_at: at,
        started_at: Some(at),
        finished_at: None,
    }
}
