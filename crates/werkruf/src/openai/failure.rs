//! The errors of model requests outside turns.

use http::StatusCode;
use werkruf_contract::{ErrorEvent, TurnError, Uuid};

use crate::api::error::ApiError;

/// The error of a model request that failed. It is the one that a turn would fail with.
pub(crate) fn failed_request(error: TurnError) -> ApiError {
    if error.code == "not_configured" {
        return not_configured("No language model is configured; the operator connects one.");
    }
    let TurnError { kind, code, message, retry_after_ms, cause } = error;
    if let Some(cause) = cause {
        tracing::warn!(code, cause, "a model request outside a turn failed");
    }
    ApiError::failed_turn(None, &ErrorEvent { kind, code, message, retry_after_ms, turn_id: Uuid::nil() })
}

/// 400: the operator has configured no model for this.
pub(crate) fn not_configured(message: &'static str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "not_configured", message)
}
