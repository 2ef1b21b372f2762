//! The stage that checks rights. They are read when a call runs, over all roles, not when the turn started.

use std::sync::Arc;

use serde_json::json;
use werkruf_contract::{ErrorCode, Failure, Principal, Scope};
use werkruf_store::CallRow;

use super::batch::CallBatch;
use crate::registry::Entry;
use crate::safety::SafetyProfile;

impl CallBatch<'_> {
    /// The profiles of the request, its key and its assistant: all of them apply. `None` for one that is no longer configured.
    pub(super) fn safety_profiles(&self) -> impl Iterator<Item = Option<&SafetyProfile>> {
        self.context.safety_profiles().map(|name| self.scope.setup.safety.get(name))
    }

    /// Which rows the call may touch. The decision is written into the row.
    pub(super) fn permit(&self, entry: &Entry, principal: Option<&Arc<Principal>>, row: &mut CallRow) -> Result<Scope, Failure> {
        let spec = entry.spec();
        // A profile that is no longer configured allows nothing.
        let denied =
            self.safety_profiles().any(|profile| profile.is_none_or(|profile| profile.tools_denied.iter().any(|name| spec.goes_by(name))));
        let held = spec.permission.as_ref().zip(principal).and_then(|(need, principal)| principal.decisive(need)).filter(|_| !denied);
        let granted = match (&spec.permission, principal) {
            (_, None) => None,
            (None, Some(_)) => Some(Scope::Own).filter(|_| !denied),
            (Some(_), Some(_)) => held.map(|held| held.permission.scope),
        };
        let decision = json!({
            "needs": spec.permission.as_ref().map(ToString::to_string),
            "granted": granted.is_some(),
            "role": held.map(|held| &held.role),
            "permission": held.map(|held| held.permission.to_string()),
            "scope": held.map(|held| held.permission.scope),
        });
        row.permission = Some(decision.to_string());
        granted.ok_or_else(|| {
            let failure = Failure::fatal(ErrorCode::PermissionDenied, "").nothing_happened();
            if denied { failure.because("switched off by the safety mode") } else { failure }
        })
    }
}
