//! The patch of a call to the session state. A patch that may not be applied is dropped and named in the call's `meta.routing`; the call
//! stays succeeded, because its effect has happened.

use serde_json::json;
use werkruf_contract::State;

use super::outcome::{CallOutcome, Success};
use crate::stored::StoredMeta;

/// Why a patch was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchFault {
    /// The state would be larger than `limits.state_bytes`.
    StateTooLarge,
}

impl PatchFault {
    const fn as_str(self) -> &'static str {
        match self {
            Self::StateTooLarge => "state_too_large",
        }
    }
}

/// Whether a state may become this. One that is too large already may become smaller.
pub(crate) fn check_size(before: &State, after: &State, max_bytes: usize) -> Result<(), PatchFault> {
    let size = json_bytes(after);
    if size > max_bytes && size > json_bytes(before) { Err(PatchFault::StateTooLarge) } else { Ok(()) }
}

/// The size of a state as JSON.
fn json_bytes(state: &State) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing to a counter does not fail.
    serde_json::to_writer(&mut count, state).map_or(usize::MAX, |()| count.0)
}

impl CallOutcome {
    /// The same outcome without its patch, and with a note about it.
    pub(crate) fn without_patch(&self, fault: PatchFault) -> Self {
        let mut outcome = self.clone();
        if let Ok(success) = &mut outcome.result {
            success.drop_patch(fault);
        }
        outcome
    }
}

impl Success {
    fn drop_patch(&mut self, fault: PatchFault) {
        self.state_patch = None;
        let mut meta: StoredMeta = self.meta.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        meta.state_patch = None;
        meta.routing.get_or_insert_default().insert("state_patch_dropped".to_owned(), json!({"reason": fault.as_str()}));
        self.meta = meta.to_column();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use werkruf_contract::State;

    use super::{PatchFault, check_size};

    #[test]
    fn a_state_may_not_grow_beyond_its_limit() {
        let of = |n: usize| State::from_iter([("a".to_owned(), json!("x".repeat(n)))]);
        // {"a":"…"} has eight bytes beside the text.
        assert_eq!(check_size(&of(0), &of(92), 100), Ok(()));
        assert_eq!(check_size(&of(0), &of(93), 100), Err(PatchFault::StateTooLarge));
        assert_eq!(check_size(&of(200), &of(150), 100), Ok(()), "it becomes smaller");
        assert_eq!(check_size(&of(150), &of(200), 100), Err(PatchFault::StateTooLarge));
    }
}
