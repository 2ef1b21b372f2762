//! The patch of a call to the session state: what of it may not be applied, and the state that the calls of a batch make together.

use serde_json::{Map, Value, json};
use werkruf_contract::{Reply, State, json_bytes, merge_concurrent};

use crate::registry::{Entry, Registry};

/// The field of `routing` that lists what of a patch was dropped.
const DROPPED: &str = "state_patch_dropped";

/// The session state while the calls of a batch change it.
pub(super) struct PatchedState<'a> {
    /// The state that the calls started with.
    base: &'a State,
    /// `None` until a call changes it.
    now: Option<State>,
    /// An upper bound of the state's size as JSON. Counted when the first patch comes.
    at_most_bytes: Option<usize>,
}

impl<'a> PatchedState<'a> {
    pub(super) const fn new(base: &'a State) -> Self {
        Self { base, now: None, at_most_bytes: None }
    }

    /// Merges a patch, which is updated to what was merged. False, and nothing is merged, where the state would be larger than allowed. A state
    /// that is too large already may become smaller.
    pub(super) fn merge(&mut self, patch: &mut State, max_bytes: usize) -> bool {
        // The merged state has at most the bytes of both. Only where that is too much it is built beside the old one and counted.
        let bound = self.at_most_bytes.unwrap_or_else(|| json_bytes(self.base)).saturating_add(json_bytes(patch));
        if bound <= max_bytes {
            merge_concurrent(self.now.get_or_insert_with(|| self.base.clone()), self.base, patch);
            self.at_most_bytes = Some(bound);
            return true;
        }
        let before = self.now.as_ref().unwrap_or(self.base);
        let mut merged = before.clone();
        merge_concurrent(&mut merged, self.base, patch);
        let bytes = json_bytes(&merged);
        let fits = bytes <= max_bytes || bytes <= json_bytes(before);
        if fits {
            (self.now, self.at_most_bytes) = (Some(merged), Some(bytes));
        }
        fits
    }

    /// The state after the batch, where a call changed it.
    pub(super) fn into_changed(self) -> Option<State> {
        self.now
    }
}

/// Takes the fields out of a state patch that belong to other tools or to the server, and says so. Otherwise any tool could write what the prompt
/// of later turns contains, or plant an offer that the user's next "yes" accepts.
pub(super) fn drop_owned(reply: &mut Reply, entry: &Entry, registry: &Registry) {
    let Some(patch) = &mut reply.state_patch else { return };
    let mut dropped = Vec::new();
    patch.retain(|field, _| {
        let may = registry.may_patch(entry, field);
        if !may {
            dropped.push(json!({"key": field, "reason": "owned"}));
        }
        may
    });
    if dropped.is_empty() {
        return;
    }
    if patch.is_empty() {
        reply.state_patch = None;
    }
    list_dropped(&mut reply.routing, dropped);
}

/// Lists in `routing` what of a patch was dropped, and why.
pub(super) fn list_dropped(routing: &mut Option<Map<String, Value>>, dropped: Vec<Value>) {
    let routing = routing.get_or_insert_default();
    match routing.get_mut(DROPPED) {
        Some(Value::Array(listed)) => listed.extend(dropped),
        Some(_) | None => drop(routing.insert(DROPPED.to_owned(), dropped.into())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use werkruf_contract::State;

    use super::PatchedState;

    fn state(value: serde_json::Value) -> State {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_state_may_not_grow_beyond_its_limit() {
        let of = |n: usize| state(json!({"a": "x".repeat(n)}));
        // {"a":"…"} has eight bytes beside the text.
        for (before, after, fits) in [(0, 92, true), (0, 93, false), (200, 150, true), (150, 200, false)] {
            let base = of(before);
            let mut patched = PatchedState::new(&base);
            assert_eq!(patched.merge(&mut of(after), 100), fits, "{before} to {after}");
            assert_eq!(patched.into_changed(), fits.then(|| of(after)));
        }
    }

    #[test]
    fn patches_of_one_batch_share_the_limit_and_one_that_does_not_fit_changes_nothing() {
        let base = state(json!({"list": [1], "gone": "x".repeat(50)}));
        let mut patched = PatchedState::new(&base);
        let mut appended = state(json!({"list": [1, 2]}));
        assert!(patched.merge(&mut state(json!({"list": [1, 3]})), 100) && patched.merge(&mut appended, 100));
        assert_eq!(appended, state(json!({"list": [1, 3, 2]})), "siblings append to one list");
        assert!(!patched.merge(&mut state(json!({"list": [1, 4], "more": "x".repeat(40)})), 100));
        // Counted exactly, there is room for what takes the place of another field.
        assert!(patched.merge(&mut state(json!({"gone": null, "more": "x".repeat(50)})), 100));
        assert_eq!(patched.into_changed(), Some(state(json!({"list": [1, 3, 2], "more": "x".repeat(50)}))));
    }
}
