//! Taint: the untrusted results that the model has read before it makes a call, and what its calls may then still do.
//!
//! A text from a stranger may contain instructions. A call with consequences that a model makes after it has read one needs a person's consent.
//! The marks are stored with the messages of a history, so that a turn finds them where it reads the history anyway.

use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, ToolSpec, Trust, Uuid};
use werkruf_store::CallRow;

use crate::stored::json;

/// More results of one tool than this are not recorded. The first of each tool always is: whether a call may run depends on the tools.
const MOST_OF_A_TOOL: usize = 32;

/// `[[assistants]] taint`: what a tainted call with consequences needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaintPolicy {
    /// Nothing; the sources are still recorded.
    Off,
    /// An approval.
    #[default]
    Approve,
    /// It is refused.
    Deny,
}

/// An untrusted result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UntrustedResult {
    pub(crate) tool: String,
    /// The row of the call; `None` where the history does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job_id: Option<Uuid>,
}

impl UntrustedResult {
    pub(crate) fn of(row: &CallRow) -> Self {
        Self { tool: row.tool_name.clone(), job_id: Some(row.id) }
    }
}

/// What the model of a turn has read, and the policy of its assistant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Taint {
    policy: TaintPolicy,
    read: Vec<UntrustedResult>,
}

impl Taint {
    /// Nothing was read yet.
    pub(crate) const fn new(policy: TaintPolicy) -> Self {
        Self { policy, read: Vec::new() }
    }

    /// For a direct call: no model chose it, so nothing can have misled one. Only a retry brings along what was read before the first try. It is
    /// a person's request, so where the assistant would refuse, an approval is enough.
    pub(crate) const fn of_direct_call(policy: TaintPolicy) -> Self {
        Self::new(match policy {
            TaintPolicy::Off => TaintPolicy::Off,
            TaintPolicy::Approve | TaintPolicy::Deny => TaintPolicy::Approve,
        })
    }

    pub(crate) fn add(&mut self, results: impl IntoIterator<Item = UntrustedResult>) {
        for result in results {
            let of_tool = self.read.iter().filter(|read| read.tool == result.tool).count();
            if of_tool < MOST_OF_A_TOOL && !self.read.contains(&result) {
                self.read.push(result);
            }
        }
    }

    /// For the row of a call that the model makes now.
    pub(crate) fn to_column(&self) -> Option<String> {
        (!self.read.is_empty()).then(|| json(&self.read))
    }

    /// What the policy asks of this call; `None` where the call may run as if nothing had been read. The row says what was read when the model
    /// made the call, also where another process continues it.
    pub(crate) fn demand(&self, spec: &ToolSpec, row: &CallRow) -> Option<TaintPolicy> {
        if self.policy == TaintPolicy::Off || (spec.effect != Effect::Once && !spec.external) {
            return None;
        }
        // What cannot be parsed names no tool and counts as read.
        let read: Vec<UntrustedResult> = serde_json::from_str(row.taint.as_deref()?).unwrap_or_default();
        let only_itself = !read.is_empty() && read.iter().all(|result| result.tool == spec.name);
        let has_consequences = spec.effect == Effect::Once || !only_itself;
        has_consequences.then_some(self.policy)
    }
}

/// Whether every result of this tool is untrusted.
pub(crate) fn is_untrusted(spec: &ToolSpec) -> bool {
    spec.trust == Trust::Untrusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::test_rows::once_call;

    fn taint(policy: TaintPolicy, tools: &[&str]) -> Taint {
        let mut taint = Taint::new(policy);
        taint.add(tools.iter().map(|tool| UntrustedResult { tool: (*tool).to_owned(), job_id: None }));
        taint
    }

    fn demand(taint: &Taint, effect: Effect, external: bool) -> Option<TaintPolicy> {
        let row = CallRow { taint: taint.to_column(), ..once_call() };
        taint.demand(&ToolSpec { external, ..ToolSpec::new("pay", "Pays.", effect) }, &row)
    }

    #[test]
    fn only_calls_with_consequences_need_consent_and_a_source_may_be_called_again() {
        let web = taint(TaintPolicy::Approve, &["web"]);
        assert_eq!(demand(&web, Effect::Once, false), Some(TaintPolicy::Approve));
        assert_eq!(demand(&web, Effect::Idempotent, true), Some(TaintPolicy::Approve));
        assert_eq!([demand(&web, Effect::Read, false), demand(&web, Effect::Idempotent, false)], [None, None]);
        let itself = taint(TaintPolicy::Deny, &["pay"]);
        assert_eq!([demand(&itself, Effect::Read, true), demand(&itself, Effect::Once, true)], [None, Some(TaintPolicy::Deny)]);
        let both = taint(TaintPolicy::Deny, &["pay", "web"]);
        assert_eq!(demand(&both, Effect::Read, true), Some(TaintPolicy::Deny));
        assert_eq!(demand(&taint(TaintPolicy::Off, &["web"]), Effect::Once, true), None);
        assert_eq!(demand(&taint(TaintPolicy::Deny, &[]), Effect::Once, true), None);
    }

    #[test]
    fn many_results_of_one_tool_do_not_hide_another_tool() {
        let mut read = Taint::new(TaintPolicy::Approve);
        read.add((0..100).map(|number| UntrustedResult { tool: "pay".to_owned(), job_id: Some(Uuid::from_u128(number)) }));
        assert_eq!(read.read.len(), MOST_OF_A_TOOL);
        assert_eq!(demand(&read, Effect::Read, true), None);
        read.add([UntrustedResult { tool: "web".to_owned(), job_id: None }]);
        assert_eq!(demand(&read, Effect::Read, true), Some(TaintPolicy::Approve));
    }
}
