//! Why a tool or a turn gets no answer from a model.

use werkruf_contract::{ErrorCode, Failure, Texts, ToolErrorType, TurnError};
use werkruf_llm::{ModelError, ModelFault, RefusalReason};
use werkruf_store::StoreError;

use crate::budgets::BudgetRefusal;

/// The language of failures, which the model reads.
const LOCALE: &str = "en";

/// Why a request of a tool, or one outside a turn, has no answer. Tools get a failure of their call; who asks outside a turn gets what a turn would
/// fail with.
pub(crate) enum RequestError {
    /// The model's server failed or refused. Boxed: it is large.
    Model { error: Box<ModelError>, provider: String },
    /// Anything else: no model, no room in a budget, no time.
    Other(Failure),
}

impl RequestError {
    pub(super) fn of_model(error: ModelError, provider: &str) -> Self {
        Self::Model { error: Box::new(error), provider: provider.to_owned() }
    }

    /// The failure of the tool's call.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Model { error, .. } => failure(&error),
            Self::Other(failure) => failure,
        }
    }

    /// The error of a request outside a turn. Its clients are programs, so it is English.
    pub(crate) fn into_turn_error(self) -> TurnError {
        match self {
            Self::Model { error, provider } => turn_error(&error, &provider, &Texts::of(LOCALE)),
            Self::Other(Failure { kind, code, message, cause, retry_after, .. }) => TurnError {
                retry_after_ms: retry_after.and_then(|span| u64::try_from(span.as_millis()).ok()),
                cause,
                ..TurnError::new(kind, code, message)
            },
        }
    }
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

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

/// The error of a turn. A refusal keeps its meaning, with the provider's text; the cause, for operators, names the provider.
pub(crate) fn turn_error(error: &ModelError, provider: &str, texts: &Texts) -> TurnError {
    let mut failure = match error.refusal() {
        Some(RefusalReason::Credentials) => refused_turn(ToolErrorType::Upstream, ErrorCode::ModelCredentials, texts, ""),
        Some(reason) => {
            let code = match reason {
                RefusalReason::ContextLength => ErrorCode::ContextLengthExceeded,
                RefusalReason::Image => ErrorCode::InvalidImage,
                RefusalReason::UnknownModel => ErrorCode::ModelNotFound,
                RefusalReason::Credentials | RefusalReason::Other => ErrorCode::ModelRefused,
            };
            refused_turn(ToolErrorType::Validation, code, texts, &error.provider_text())
        }
        None => {
            let (kind, code, key) = match error.fault {
                ModelFault::Incomplete | ModelFault::Idle => {
                    (ToolErrorType::Upstream, ErrorCode::ModelIncomplete, "error-model_incomplete")
                }
                ModelFault::Refused { status: 429 } => (ToolErrorType::RateLimit, ErrorCode::ModelUnavailable, "error-model_busy"),
                ModelFault::Connect => (ToolErrorType::Upstream, ErrorCode::ModelUnavailable, "error-model_unreachable"),
                ModelFault::Protocol => (ToolErrorType::Upstream, ErrorCode::ModelUnavailable, "error-model_unreadable"),
                ModelFault::Refused { .. } | ModelFault::FirstByte => {
                    (ToolErrorType::Upstream, ErrorCode::ModelUnavailable, "error-model_unavailable")
                }
            };
            TurnError::new(kind, code, texts.text(key, &[]))
        }
    };
    failure.retry_after_ms = error.retry_after.and_then(|span| u64::try_from(span.as_millis()).ok());
    failure.cause = Some(format!("{provider} {error}"));
    failure
}

fn refused_turn(kind: ToolErrorType, code: ErrorCode, texts: &Texts, provider_text: &str) -> TurnError {
    let message = texts.text(&format!("error-{code}"), &[]);
    let message = if provider_text.is_empty() { message } else { format!("{message} {provider_text}") };
    TurnError::new(kind, code, message)
}
