//! Whether an answer is complete, and whether its calls may run.
//!
//! Only `response.completed` ends an answer normally. The status of an item is no evidence: finished calls arrive as `in_progress`.
//! Every call must be finished, by its own event or in the final response, and nothing may have been lost.

use super::assemble::Assembly;
use crate::reader::AnswerState;

/// The state of the answer so far.
pub(crate) fn state(assembly: &Assembly) -> AnswerState {
    if assembly.failure.is_some() {
        return AnswerState::Failed;
    }
    match assembly.finish.as_deref() {
        Some("completed") if assembly.damaged && assembly.has_calls() => AnswerState::Truncated,
        Some("completed") if assembly.has_unfinished_calls() => AnswerState::Truncated,
        Some("completed") => AnswerState::Complete,
        Some("incomplete") => AnswerState::Truncated,
        Some(_) | None => AnswerState::Open,
    }
}
