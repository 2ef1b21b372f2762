//! Whether an answer is complete, and whether its calls may run.
//!
//! Any finish reason ends an answer (`stop` with calls is common), and so does `[DONE]` after content.
//! An error inside the stream does not. A truncated answer may be shown, but its calls never run, because their arguments may be incomplete.

use super::assemble::Assembly;
use crate::reader::AnswerState;

/// The state of the answer so far.
pub(crate) fn state(assembly: &Assembly) -> AnswerState {
    if assembly.failure.is_some() || assembly.finish.as_deref() == Some("error") {
        return AnswerState::Failed;
    }
    let has_content = assembly.has_calls() || !assembly.text.is_empty() || !assembly.refusal.is_empty();
    if assembly.finish.is_none() && !(assembly.done && has_content) {
        return AnswerState::Open;
    }
    if assembly.has_calls() && (assembly.truncated || assembly.damaged) { AnswerState::Truncated } else { AnswerState::Complete }
}
