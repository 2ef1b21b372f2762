//! The model gate: every request to a provider passes it.

mod gate;
mod retry;
mod usage;

pub(crate) use gate::Admission;
pub use gate::ModelGate;
pub(crate) use retry::{MAX_SENDS, RetryPause, pause_before_retry};
pub(crate) use usage::{Meter, Settlement, estimated_tokens};
