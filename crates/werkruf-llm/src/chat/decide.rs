//! Whether an answer is whole, and whether its calls may run.
//!
//! A finish reason ends an answer, whatever it says about calls (`stop` with calls is common); so does `[DONE]` after content.
//! An error inside the stream never does. A cut answer may be shown, but its calls never run: their arguments may be half.

use super::assemble::Assembly;
use crate::reading::Standing;

/// Looks at what has arrived so far.
pub(crate) fn standing(assembly: &Assembly) -> Standing {
    if assembly.failure.is_some() || assembly.finish.as_deref() == Some("error") {
        return Standing::Failed;
    }
    let has_content = assembly.has_calls() || !assembly.text.is_empty() || !assembly.refusal.is_empty();
    if assembly.finish.is_none() && !(assembly.done && has_content) {
        return Standing::Open;
    }
    if assembly.has_calls() && (assembly.truncated || assembly.damaged) { Standing::Cut } else { Standing::Whole }
}
