//! The failure of a tool call that could not read from the store.

use werkruf_contract::{Failure, ToolErrorType};
use werkruf_store::StoreError;

/// The failure with this message. A read has no effect, so nothing happened.
pub(crate) fn read_failure(error: &StoreError, message: &'static str) -> Failure {
    let failure = match error {
        StoreError::Unavailable(_) | StoreError::Full(_) => Failure::new(ToolErrorType::Retryable, "database_unavailable", message),
        _ => Failure::fatal("internal", message),
    };
    failure.nothing_happened().because(error.to_string())
}
