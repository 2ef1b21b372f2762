//! Rows for tests.

use werkruf_contract::{CallStatus, Effect, Uuid};
use werkruf_store::{CallRow, NewCall};

/// A running call of a tool that may be sent only once.
pub(crate) fn once_call() -> CallRow {
    let at = jiff::Timestamp::UNIX_EPOCH;
    CallRow {
        status: CallStatus::Running,
        effect: Effect::Once,
        attempt: 1,
        started_at: Some(at),
        ..CallRow::queued(NewCall {
            id: Uuid::from_u128(9),
            tenant_id: Uuid::nil(),
            conversation_id: Some(Uuid::from_u128(1)),
            turn_id: Uuid::nil(),
            step: 1,
            output_index: 0,
            tool_name: "pay".to_owned(),
            now: at,
        })
    }
}
