//! The error codes that the server itself gives to calls and turns. Tools may use other codes of their own.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::string_enum;

string_enum! {
    /// An error code of the server; each has a page in `docs/errors`.
    ErrorCode {
        ApprovalDenied = "approval_denied",
        ApprovalExpired = "approval_expired",
        /// The identical call waits for an approval already.
        ApprovalPending = "approval_pending",
        /// The response of a tool or of the service behind it cannot be read.
        BadResponse = "bad_response",
        /// A budget has no room for a model request.
        BudgetExceeded = "budget_exceeded",
        Canceled = "canceled",
        /// The request has more tokens than the model reads.
        ContextLengthExceeded = "context_length_exceeded",
        /// The answer does not fit the format that the request asks for.
        FormatViolated = "format_violated",
        /// The call was open when its process stopped, or its model answer broke off.
        Interrupted = "interrupted",
        InvalidArguments = "invalid_arguments",
        /// The model cannot read a picture of the request.
        InvalidImage = "invalid_image",
        /// The model's server does not accept this server's key.
        ModelCredentials = "model_credentials",
        /// The model's answer ended before it was complete.
        ModelIncomplete = "model_incomplete",
        /// The model's server has no such model.
        ModelNotFound = "model_not_found",
        /// The model's server refuses the request, and would refuse it again.
        ModelRefused = "model_refused",
        ModelUnavailable = "model_unavailable",
        /// The person must first connect an account of their own at the server behind the tool.
        NeedsConnection = "needs_connection",
        /// The effect may have happened; the call is not repeated without a new message or `force`.
        OutcomeUnknown = "outcome_unknown",
        PermissionDenied = "permission_denied",
        /// The turn stopped the server several times and is not resumed.
        Poison = "poison",
        /// A budget in money counts a request of a model without a price.
        PriceUnknown = "price_unknown",
        /// A call that the provider ran itself failed.
        ProviderCallFailed = "provider_call_failed",
        /// The provider did not run a call for which it had asked permission.
        ProviderCallNotRun = "provider_call_not_run",
        RateLimited = "rate_limited",
        RepeatLimit = "repeat_limit",
        ResponseTooLarge = "response_too_large",
        /// The server was restored from a backup while the turn was open.
        Restored = "restored",
        /// The session state would be larger than `limits.state_bytes`.
        StateTooLarge = "state_too_large",
        StepLimit = "step_limit",
        /// The assistant refuses calls with consequences after it has read untrusted content.
        Tainted = "tainted",
        TooManyCalls = "too_many_calls",
        /// The person wrote more messages than `turns_per_minute_user` allows.
        TooManyTurns = "too_many_turns",
        /// The server of the tool has changed its definition, and the operator has not accepted it.
        ToolChanged = "tool_changed",
        ToolPanicked = "tool_panicked",
        ToolTimeout = "tool_timeout",
        TurnDeadline = "turn_deadline",
        UnknownTool = "unknown_tool",
        UnknownUser = "unknown_user",
        UpstreamError = "upstream_error",
        UpstreamRefused = "upstream_refused",
        UpstreamUnreachable = "upstream_unreachable",
    }
}

impl ErrorCode {
    /// Whether `code` has this spelling.
    pub fn is(self, code: &str) -> bool {
        self.as_str() == code
    }
}

impl From<ErrorCode> for Cow<'static, str> {
    fn from(code: ErrorCode) -> Self {
        Self::Borrowed(code.as_str())
    }
}

impl From<ErrorCode> for String {
    fn from(code: ErrorCode) -> Self {
        code.as_str().to_owned()
    }
}
