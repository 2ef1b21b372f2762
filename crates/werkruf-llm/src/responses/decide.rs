//! Whether an answer is whole, and whether its calls may run.
//!
//! Only `response.completed` ends an answer well. An item's own status is no sign: calls arrive done and still `in_progress`.
//! Every call must have been finished, by its own event or in the response at the end, and nothing may have been lost.

use super::assemble::Assembly;
use crate::reading::Standing;

/// Looks at what has arrived so far.
pub(crate) fn standing(assembly: &Assembly) -> Standing {
    if assembly.failure.is_some() {
        return Standing::Failed;
    }
    match assembly.finish.as_deref() {
        Some("completed") if assembly.damaged && assembly.has_calls() => Standing::Cut,
        Some("completed") if assembly.has_unfinished_calls() => Standing::Cut,
        Some("completed") => Standing::Whole,
        Some("incomplete") => Standing::Cut,
        Some(_) | None => Standing::Open,
    }
}
