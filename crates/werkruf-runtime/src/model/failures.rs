//! Why a tool gets no answer from a model.

use werkruf_contract::{ErrorCode, Failure, Texts, ToolErrorType};
use werkruf_llm::{ModelError, ModelFault};
use werkruf_store::StoreError;

use crate::budgets::BudgetRefusal;

/// The language of failures, which the model reads.
const LOCALE: &str = "en";

pub(super) fn late() -> Failure {
    Failure::new(ToolErrorType::Timeout, ErrorCode::ToolTimeout, "The model did not answer in time.")
}

/// A budget has no room for the request.
pub(super) fn refused(refusal: &BudgetRefusal) -> Failure {
    refusal.failure(&Texts::of(LOCALE))
}

/// Without its budgets no request leaves.
pub(super) fn unchecked(error: &StoreError) -> Failure {
    Failure::new(ToolErrorType::Retryable, "database_unavailable", "The budget of this request cannot be checked right now.")
        .because(error.to_string())
        .nothing_happened()
}

/// What the user reads. The provider's own message stays in the cause, for the operator.
pub(super) fn failure(error: &ModelError) -> Failure {
    let (kind, status) = match error.fault {
        ModelFault::Refused { status: 429 } => (ToolErrorType::RateLimit, Some(429)),
        ModelFault::Refused { status } if status < 500 && status != 408 => (ToolErrorType::Fatal, Some(status)),
        ModelFault::Refused { status } => (ToolErrorType::Upstream, Some(status)),
        ModelFault::FirstByte | ModelFault::Idle => (ToolErrorType::Timeout, None),
        ModelFault::Connect | ModelFault::Incomplete | ModelFault::Protocol => (ToolErrorType::Upstream, None),
    };
    let failure = Failure::new(kind, "model_unavailable", "The model cannot be asked right now.");
    Failure { upstream_status: status, ..failure.because(error.to_string()).retry_after(error.retry_after) }
}
