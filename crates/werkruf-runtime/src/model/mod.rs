//! The model gate: every request to a provider passes it.

mod access;
mod failures;
mod gate;
mod retry;
mod span;
mod text_request;
mod usage;
mod vectors;
mod worst_case;

pub use access::ModelAccounts;
pub(crate) use access::{ModelAccess, ToolCall};
pub(crate) use failures::{RequestError, turn_error};
pub(crate) use gate::Admission;
pub use gate::{ModelGate, ModelProviders};
pub(crate) use retry::{MAX_SENDS, RetryPause, pause_before_retry};
pub(crate) use usage::{Meter, Sending, Sent, Settlement, estimated_tokens};
pub(crate) use worst_case::worst_case;
