//! The stage that checks rights. They are read when a call runs, over all roles, not when the turn started.

use std::sync::Arc;

use serde_json::{Value, json};
use werkruf_contract::{ErrorCode, Failure, Need, Principal, Scope, ToolSpec};
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
    pub(super) fn permit(
        &self,
        entry: &Entry,
        args: &Value,
        principal: Option<&Arc<Principal>>,
        row: &mut CallRow,
    ) -> Result<Scope, Failure> {
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
        // A tool that needs a permission only for the data of others decides about them itself; the row says what it goes by.
        let for_other = principal.and_then(|principal| need_for_other(spec, args, principal));
        let (needs, held, is_granted) = match for_other {
            Some(need) => {
                let held = principal.and_then(|principal| principal.decisive(need)).filter(|_| !denied);
                (Some(need), held, granted.is_some() && held.is_some())
            }
            None => (spec.permission.as_ref(), held, granted.is_some()),
        };
        let decision = json!({
            "needs": needs.map(ToString::to_string),
            "granted": is_granted,
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

/// What the call needs because it is about another user.
fn need_for_other<'s>(spec: &'s ToolSpec, args: &Value, principal: &Principal) -> Option<&'s Need> {
    let others = spec.permission_for_others.as_ref()?;
    let number = args.get(others.argument)?;
    let named = number.as_i64().map(|number| number.to_string()).or_else(|| number.as_f64().map(|number| number.to_string()))?;
    (named != principal.user_id).then_some(&others.need)
}
