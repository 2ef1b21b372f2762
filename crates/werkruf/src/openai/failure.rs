//! The errors of model requests outside turns.

use std::time::Duration;

use http::StatusCode;
use werkruf_contract::{ErrorEvent, Failure, Uuid};

use crate::api::error::ApiError;

/// The error of a model request that failed.
pub(crate) fn failed_request(failure: Failure) -> ApiError {
    if failure.code == "not_configured" {
        return not_configured("No language model is configured; the operator connects one.");
    }
    if let Some(cause) = &failure.cause {
        tracing::warn!(code = %failure.code, cause, "a model request outside a turn failed");
    }
    match failure.upstream_status {
        // Repeating does not help: the operator's credential is wrong.
        Some(401 | 403) => return ApiError::new(StatusCode::BAD_GATEWAY, "model_unavailable", failure.message),
        Some(400 | 404 | 413 | 422) => {
            return ApiError::new(StatusCode::BAD_REQUEST, "upstream_refused", "The model server refused the request; change the input.");
        }
        _ => {}
    }
    let retry_after_ms = failure.retry_after.map(|wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let Failure { kind, code, message, .. } = failure;
    ApiError::failed_turn(None, &ErrorEvent { kind, code: code.into_owned(), message, retry_after_ms, turn_id: Uuid::nil() })
}

/// 400: the operator has configured no model for this.
pub(crate) fn not_configured(message: &'static str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "not_configured", message)
}
