//! Errors in OpenAI's format, for all paths under `/v1`.

use http::StatusCode;
use serde_json::{Value, json};

use super::client_events::TurnFailure;
use crate::api::error::ApiError;

/// The response body of an error.
pub(crate) fn body(error: &ApiError) -> Value {
    json!({"error": inner(error)})
}

/// The value of the field `error`.
pub(crate) fn inner(error: &ApiError) -> Value {
    json!({"message": error.message(), "type": kind(error.status()), "param": error.wrong_param(), "code": error.code()})
}

/// The error of a failed turn.
pub(crate) fn failed_turn(failure: &TurnFailure) -> ApiError {
    ApiError::failed_turn(None, &failure.event())
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

    use super::{body, kind};
    use crate::api::error::ApiError;

    #[test]
    fn an_error_has_the_type_of_its_status() {
        let error_body = body(&ApiError::unauthorized("No key."));
        let inner = json!({"message": "No key.", "type": "authentication_error", "param": null, "code": "unauthorized"});
        assert_eq!(error_body, json!({"error": inner}));
        assert_eq!(kind(StatusCode::NOT_FOUND), "invalid_request_error");
        assert_eq!(kind(StatusCode::BAD_GATEWAY), "server_error");
    }
}
