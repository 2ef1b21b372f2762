//! When a model request is sent again.

use std::time::Duration;

use werkruf_llm::ModelError;

/// How often a request is sent in all.
pub(crate) const MAX_SENDS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A provider that asks for a longer pause is not waited for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What to do before the next send.
pub(crate) enum RetryPause {
    Wait(Duration),
    /// The provider wants a longer pause than there is time for.
    TooLong(Duration),
}

/// The pause after this many sends, where this much time is left.
pub(crate) fn pause_before_retry(sent: u32, error: &ModelError, left: Duration) -> RetryPause {
    let pause = error.retry_after.unwrap_or(FIRST_PAUSE * 2_u32.pow(sent - 1));
    if pause > LONGEST_PAUSE || pause > left { RetryPause::TooLong(pause) } else { RetryPause::Wait(pause) }
}
