//! Refusals in OpenAI's shape, for everything under `/v1`.

use http::StatusCode;
use serde_json::{Value, json};

use super::heard::Failed;
use crate::api::error::ApiError;

/// Whether refusals at this path have OpenAI's shape.
pub(crate) fn speaks_openai(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

/// The whole body of a refusal.
pub(crate) fn body(error: &ApiError) -> Value {
    json!({"error": inner(error)})
}

/// What stands under `error`.
pub(crate) fn inner(error: &ApiError) -> Value {
    json!({"message": error.message(), "type": kind(error.status()), "param": null, "code": error.code()})
}

/// A turn that failed, as a refusal.
pub(crate) fn failed(failed: &Failed) -> ApiError {
    ApiError::failed_turn(None, &failed.event())
}

const fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::json;

    use super::{body, kind, speaks_openai};
    use crate::api::error::ApiError;

    #[test]
    fn a_refusal_says_who_must_act() {
        let refused = body(&ApiError::unauthorized("No key."));
        let inner = json!({"message": "No key.", "type": "authentication_error", "param": null, "code": "unauthorized"});
        assert_eq!(refused, json!({"error": inner}));
        assert_eq!(kind(StatusCode::NOT_FOUND), "invalid_request_error");
        assert_eq!(kind(StatusCode::BAD_GATEWAY), "server_error");
    }

    #[test]
    fn only_these_doors_speak_so() {
        assert!(speaks_openai("/v1") && speaks_openai("/v1/models"));
        assert!(!speaks_openai("/v1x") && !speaks_openai("/functions/v1/chat-rag"));
    }
}
