//! The errors of tools and turns. An error answers three questions: who acts on it, may it be retried, who may read it.

use std::borrow::Cow;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::call::string_enum;
use crate::error_code::ErrorCode;

string_enum! {
    /// The standard classes of tool errors (seed 002).
    ToolErrorType {
        /// The upstream service or the platform limits throughput.
        RateLimit = "RATE_LIMIT",
        /// A time budget ran out.
        Timeout = "TIMEOUT",
        /// A service behind the tool failed.
        Upstream = "UPSTREAM",
        /// Input or output violates its schema.
        Validation = "VALIDATION",
        /// A transient fault; another attempt may succeed.
        Retryable = "RETRYABLE",
        /// Cannot succeed until a person fixes the cause.
        Fatal = "FATAL",
    }
}

impl ToolErrorType {
    /// Whether another attempt can help (the effect class decides whether it is allowed).
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimit | Self::Timeout | Self::Upstream | Self::Retryable)
    }
}

/// Whether the effect may have happened although the call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// No request was sent, or the service reported that it refused the request.
    No,
    /// A request may have been sent; only the service knows whether it took effect.
    Unknown,
}

/// The error type that tools return.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub kind: ToolErrorType,
    /// Stable, from a fixed set, so that errors can be counted by code: an [`ErrorCode`] or a code of the tool.
    pub code: Cow<'static, str>,
    /// For the model and the user; never contains a secret or text from the upstream service.
    pub message: String,
    /// For the log and the registry's `error_detail`.
    pub cause: Option<String>,
    pub retry_after: Option<Duration>,
    pub upstream_status: Option<u16>,
    pub endpoint: Option<String>,
    pub details: Option<Map<String, Value>>,
    pub happened: Happened,
}

impl Failure {
    /// A failure of this class. For rejected input and rate limits the effect is assumed not to have happened.
    pub fn new(kind: ToolErrorType, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let happened = match kind {
            ToolErrorType::Validation | ToolErrorType::RateLimit => Happened::No,
            ToolErrorType::Timeout | ToolErrorType::Upstream | ToolErrorType::Retryable | ToolErrorType::Fatal => Happened::Unknown,
        };
        Self {
            kind,
            code: code.into(),
            message: message.into(),
            cause: None,
            retry_after: None,
            upstream_status: None,
            endpoint: None,
            details: None,
            happened,
        }
    }

    /// The tool rejects the input.
    pub fn validation(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ToolErrorType::Validation, code, message)
    }

    /// A service behind the tool failed.
    pub fn upstream(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ToolErrorType::Upstream, code, message)
    }

    /// The caller cannot fix the cause.
    pub fn fatal(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ToolErrorType::Fatal, code, message)
    }

    /// Whether the failure has this code of the server.
    pub fn is(&self, code: ErrorCode) -> bool {
        code.is(&self.code)
    }

    /// The effect certainly did not happen.
    #[must_use]
    pub fn nothing_happened(mut self) -> Self {
        self.happened = Happened::No;
        self
    }

    /// The effect may have happened.
    #[must_use]
    pub fn may_have_happened(mut self) -> Self {
        self.happened = Happened::Unknown;
        self
    }

    /// Adds the technical cause, which only the log and the operator may read.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Adds the wait time that the upstream service requested.
    #[must_use]
    pub fn retry_after(mut self, span: Option<Duration>) -> Self {
        self.retry_after = span;
        self
    }

    /// Adds the upstream service's status and endpoint.
    #[must_use]
    pub fn from_upstream(mut self, status: Option<u16>, endpoint: impl Into<String>) -> Self {
        self.upstream_status = status;
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Adds machine-readable details.
    #[must_use]
    pub fn with_details(mut self, details: Map<String, Value>) -> Self {
        self.details = Some(details);
        self
    }

    /// Converts the failure into the `error` part of the envelope.
    pub fn into_detail(self, attempt: u32) -> ToolErrorDetail {
        ToolErrorDetail {
            kind: self.kind,
            message: self.message,
            code: Some(self.code.into_owned()),
            cause: self.cause,
            details: self.details,
            retry_after_ms: self.retry_after.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
            upstream_status: self.upstream_status.map(i64::from),
            endpoint: self.endpoint,
            attempt: (attempt > 0).then_some(i64::from(attempt)),
        }
    }
}

/// The `error` part of an error envelope (seed 002).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = detail_example())]
pub struct ToolErrorDetail {
    /// The standard error class.
    #[serde(rename = "type")]
    pub kind: ToolErrorType,
    /// Human-readable message.
    pub message: String,
    /// Tool-specific code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Technical cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Structured details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
    /// Wait time before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<i64>,
    /// Status of the service behind the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<i64>,
    /// Endpoint or queue behind the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Number of the attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
}

impl ToolErrorDetail {
    /// Removes what only the operator may read: the cause, and the endpoint, whose path may contain a secret.
    #[must_use]
    pub fn for_readers(mut self) -> Self {
        self.cause = None;
        self.endpoint = None;
        self
    }
}

/// Measurements of a failed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = serde_json::json!({"took_ms": 10}))]
pub struct ToolErrorMeta {
    /// Time until the call failed.
    pub took_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ErrorLiteral {
    #[serde(rename = "error")]
    Error,
}

/// The envelope of a failed call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = error_example())]
pub struct ToolError {
    pub(crate) status: ErrorLiteral,
    /// Echo of the input.
    pub input: Value,
    /// What went wrong.
    pub error: ToolErrorDetail,
    /// Measurements.
    pub meta: ToolErrorMeta,
}

impl ToolError {
    /// The envelope for this failure.
    pub fn new(input: Value, error: ToolErrorDetail, took_ms: u64) -> Self {
        Self { status: ErrorLiteral::Error, input, error, meta: ToolErrorMeta { took_ms } }
    }
}

/// The error of a failed turn, as in the `error` event and the JSON response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnError {
    #[serde(rename = "type")]
    pub kind: ToolErrorType,
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What happened, for operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl TurnError {
    /// A turn error of this class.
    pub fn new(kind: ToolErrorType, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into(), retry_after_ms: None, cause: None }
    }

    /// Whether the turn failed with this code of the server.
    pub fn is(&self, code: ErrorCode) -> bool {
        code.is(&self.code)
    }
}

fn detail_example() -> Value {
    serde_json::json!({"type": "VALIDATION", "message": "Missing required field", "code": "missing_field", "retry_after_ms": null})
}

fn error_example() -> Value {
    serde_json::json!({"status": "error", "input": {"query": "hello"}, "error": detail_example(), "meta": {"took_ms": 10}})
}
