//! How a call that the provider ran itself ended, as its item says.

use serde_json::{Value, json};
use werkruf_contract::{CallStatus, ErrorCode, Failure, ToolErrorType};
use werkruf_llm::ProviderItem;

use crate::call::{CallOutcome, Success, TurnScope};
use crate::stored::object;

/// The output as it came, also of a call that failed.
pub(super) fn output(item: &ProviderItem) -> Option<String> {
    item.output.as_ref().map(Value::to_string)
}

pub(super) fn outcome(scope: &TurnScope, item: &ProviderItem) -> CallOutcome {
    let result = if item.succeeded() {
        Ok(Success {
            data: output(item).unwrap_or_default(),
            named: None,
            message: None,
            state_patch: None,
            meta: None,
            untrusted: true,
            state_not_stored: false,
        })
    } else {
        let details = object(json!({"status": item.status, "error": item.error}));
        Err(Failure::new(ToolErrorType::Upstream, ErrorCode::ProviderCallFailed, "The provider's own call failed.").with_details(details))
    };
    let status = if result.is_ok() { CallStatus::Succeeded } else { CallStatus::Failed };
    CallOutcome { status, result, attempt: 1, cache_hit: false, finished_at: scope.clock.now(), untrusted: true }
}
