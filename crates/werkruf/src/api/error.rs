//! The errors of the API: a status, a code for programs and a message for people. The cause goes to the log, never into the
//! response.
//!
//! An [`ApiError`] becomes an empty response with the error as an extension; `envelope` writes the body, because only `envelope`
//! knows the request id.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::header::{LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use werkruf_contract::{ErrorCode, ErrorEvent, Texts, ToolErrorType, TurnStatus, Uuid};
use werkruf_runtime::{BudgetRefusal, Refusal};
use werkruf_store::StoreError;

/// Longer than the other retry delays, because a full disk is not freed within a second.
const STORAGE_RETRY_MS: u64 = 5000;

/// An error response.
#[derive(Debug, Clone)]
pub struct ApiError(Box<ErrorFields>);

#[derive(Debug, Clone)]
struct ErrorFields {
    status: StatusCode,
    kind: ToolErrorType,
    code: Cow<'static, str>,
    message: Cow<'static, str>,
    retry_after_ms: Option<u64>,
    details: Option<Value>,
    /// Top-level fields next to `error`, such as the id of the failed turn.
    extra: Map<String, Value>,
    location: Option<String>,
    /// The request field that is wrong, for clients of OpenAI's API.
    param: Option<&'static str>,
}

impl ApiError {
    /// An error with the type that fits its status.
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => ToolErrorType::RateLimit,
            StatusCode::SERVICE_UNAVAILABLE => ToolErrorType::Retryable,
            StatusCode::REQUEST_TIMEOUT => ToolErrorType::Timeout,
            StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::CONFLICT
            | StatusCode::GONE
            | StatusCode::UNPROCESSABLE_ENTITY => ToolErrorType::Validation,
            _ => ToolErrorType::Fatal,
        };
        Self(Box::new(ErrorFields {
            status,
            kind,
            code: code.into(),
            message: message.into(),
            retry_after_ms: None,
            details: None,
            extra: Map::new(),
            location: None,
            param: None,
        }))
    }

    /// 400: the request must be changed; the message says how.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// 400: a context header must be changed.
    pub fn invalid_context(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_context", message)
    }

    /// 401.
    pub fn unauthorized(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 403.
    pub fn forbidden(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    /// 404, with the same message whether the object never existed or belongs to another user.
    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("There is no such {what}."))
    }

    /// The request needs a module that the configuration does not switch on.
    pub fn module_off(status: StatusCode, module: &str) -> Self {
        let message = format!("The module `{module}` is off; the operator switches it on with a section [{module}] in the configuration.");
        Self::new(status, "module_off", message)
    }

    /// 409.
    pub fn conflict(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 500: a defect of the server.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server failed; the log has the cause under this request id.")
    }

    /// 409: the turn with this idempotency key has not ended yet.
    pub fn turn_running(turn_id: Uuid) -> Self {
        Self::conflict("turn_running", "The turn of this request is still running; follow it at the Location given.")
            .location(format!("/api/turns/{turn_id}"))
    }

    /// The error response for a failed turn.
    pub fn failed_turn(conversation_id: Option<Uuid>, error: &ErrorEvent) -> Self {
        let status = match (error.kind, ErrorCode::parse(&error.code)) {
            (_, Some(ErrorCode::PermissionDenied)) => StatusCode::FORBIDDEN,
            (_, Some(ErrorCode::Canceled)) => StatusCode::CONFLICT,
            (ToolErrorType::Validation, _) => StatusCode::BAD_REQUEST,
            (ToolErrorType::RateLimit, _) => StatusCode::TOO_MANY_REQUESTS,
            (ToolErrorType::Upstream, _) => StatusCode::BAD_GATEWAY,
            (ToolErrorType::Timeout, _) => StatusCode::GATEWAY_TIMEOUT,
            (ToolErrorType::Retryable, _) => StatusCode::SERVICE_UNAVAILABLE,
            (ToolErrorType::Fatal, _) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut error_response = Self::new(status, error.code.clone(), error.message.clone());
        error_response.0.kind = error.kind;
        // Every 429 response says how long to wait.
        error_response.0.retry_after_ms = error.retry_after_ms.or((status == StatusCode::TOO_MANY_REQUESTS).then_some(1000));
        let turn_status = if error.is(ErrorCode::Canceled) { TurnStatus::Canceled } else { TurnStatus::Failed };
        error_response
            .extra("status", turn_status.as_str().into())
            .extra("conversation_id", json!(conversation_id))
            .extra("turn_id", json!(error.turn_id))
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The stable code, for programs.
    pub fn code(&self) -> &str {
        &self.0.code
    }

    /// The type, for programs.
    pub fn kind(&self) -> ToolErrorType {
        self.0.kind
    }

    /// The delay before a retry, in milliseconds.
    pub fn wait_ms(&self) -> Option<u64> {
        self.0.retry_after_ms
    }

    /// The message, for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The request field that is wrong.
    pub fn wrong_param(&self) -> Option<&'static str> {
        self.0.param
    }

    /// Names the request field that is wrong.
    #[must_use]
    pub fn param(mut self, name: &'static str) -> Self {
        self.0.param = Some(name);
        self
    }

    /// Adds structured details, for programs.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.0.details = Some(details);
        self
    }

    /// Sets the delay before a retry.
    #[must_use]
    pub fn retry_after_ms(mut self, span: u64) -> Self {
        self.0.retry_after_ms = Some(span);
        self
    }

    fn location(mut self, location: String) -> Self {
        self.0.location = Some(location);
        self
    }

    fn extra(mut self, field: &str, value: Value) -> Self {
        self.0.extra.insert(field.to_owned(), value);
        self
    }

    /// The response body.
    pub fn body(&self, request_id: &str) -> Vec<u8> {
        let fields = &self.0;
        let mut error = Map::new();
        error.insert("type".to_owned(), json!(fields.kind));
        error.insert("code".to_owned(), json!(fields.code));
        error.insert("message".to_owned(), json!(fields.message));
        if let Some(span) = fields.retry_after_ms {
            error.insert("retry_after_ms".to_owned(), json!(span));
        }
        error.insert("request_id".to_owned(), json!(request_id));
        if let Some(details) = &fields.details {
            error.insert("details".to_owned(), details.clone());
        }
        let mut body = Map::new();
        body.insert("error".to_owned(), Value::Object(error));
        body.extend(fields.extra.clone());
        Value::Object(body).to_string().into_bytes()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.0.status.into_response();
        let headers = response.headers_mut();
        if let Some(span) = self.0.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(span.div_ceil(1000).max(1)));
        }
        if let Some(location) = self.0.location.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(LOCATION, location);
        }
        if ErrorCode::parse(&self.0.code).is_some_and(is_final) {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if self.0.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy => Self::conflict("turn_running", "A turn is running in this conversation; cancel it or wait for its end."),
            StoreError::StateTooLarge => Self::conflict(
                "state_too_large",
                "The session state would be larger than the server allows; clear fields of it with null or send less.",
            ),
            StoreError::Broken(_) | StoreError::Foreign(_) | StoreError::TooNew { .. } | StoreError::Prerelease(_) => {
                tracing::error!(%error, "the store failed permanently");
                Self::internal()
            }
            StoreError::Full(_) => {
                tracing::error!(%error, "the disk of the store is full");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "storage_full",
                    "The server's disk is full; nothing was accepted. Try again later.",
                )
                .retry_after_ms(STORAGE_RETRY_MS)
            }
            StoreError::Replaced(_) => {
                tracing::error!(%error, "nothing can be written");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "database_replaced",
                    "A file of the server's database was removed or replaced; nothing was accepted. The operator must restart the server.",
                )
            }
            StoreError::Fenced | StoreError::Unavailable(_) | StoreError::InUse(_) | StoreError::Moved { .. } => {
                tracing::error!(%error, "the store did not answer");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "database_unavailable", "The database does not answer; try again.")
                    .retry_after_ms(1000)
            }
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid { code, message } => Self::new(StatusCode::BAD_REQUEST, code, message),
            Refusal::UnknownConversation => Self::not_found("conversation"),
            Refusal::Superseded => {
                Self::conflict("turn_running", "The conversation was continued by another request; read it and send the message again.")
            }
            Refusal::UnknownTool(name) => Self::unknown_tool(&name),
            Refusal::UnknownCall => Self::not_found("tool call"),
            Refusal::UnknownApproval => Self::not_found("approval"),
            Refusal::NotTheApprover { roles } => {
                Self::forbidden("forbidden", format!("You may not decide this approval; one of these roles is needed: {roles}."))
            }
            Refusal::FourEyes => Self::forbidden(
                "four_eyes",
                "Whoever asked for this call may deny it, but not approve it: another person has to decide, with another credential.",
            ),
            Refusal::Duplicate { turn_id, .. } => Self::turn_running(turn_id),
            // Only a channel records items that start no turn.
            Refusal::Recorded => Self::conflict("idempotency_key_reused", "This message was received before."),
            Refusal::Conflict { code, message } => Self::conflict(code, message),
            Refusal::TooMany { retry_after_ms } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_turns", "Too many turns in the last minute; wait and try again.")
                    .retry_after_ms(retry_after_ms)
            }
            Refusal::OverBudget(refusal) => Self::over_budget(&refusal),
            Refusal::Busy { retry_after_ms } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_busy", "The server is full or shutting down; try again.")
                    .retry_after_ms(retry_after_ms)
            }
            Refusal::Store(error) => error.into(),
        }
    }
}

impl ApiError {
    /// 429: a budget has no room for the request. 400: a budget in money cannot count a model without a price.
    fn over_budget(refusal: &BudgetRefusal) -> Self {
        let texts = Texts::of("en");
        let error = match refusal.kind() {
            ToolErrorType::Validation => Self::new(StatusCode::BAD_REQUEST, refusal.code(), refusal.message(&texts)),
            // Every 429 response says how long to wait.
            _ => Self::new(StatusCode::TOO_MANY_REQUESTS, refusal.code(), refusal.message(&texts))
                .retry_after_ms(refusal.retry_after_ms().unwrap_or(1000)),
        };
        error.details(refusal.details())
    }

    /// 404: no tool of this name.
    pub fn unknown_tool(name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_tool", format!("There is no tool named {name}; GET /api/tools lists them."))
    }
}

/// Whether a repeated request would fail the same way, or would be a turn that nobody wants. Clients of OpenAI's library repeat a 409, a 429 and a
/// 5xx by themselves.
const fn is_final(code: ErrorCode) -> bool {
    // A budget resets tomorrow at the earliest. Only the operator can change the credentials. The others are the end of a turn that had its chance.
    matches!(
        code,
        ErrorCode::BudgetExceeded | ErrorCode::ModelCredentials | ErrorCode::Canceled | ErrorCode::RepeatLimit | ErrorCode::StepLimit
    )
}
