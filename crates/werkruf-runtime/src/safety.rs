//! Guard-rail profiles a caller may name in `X-Safety-Mode`.

use serde::Deserialize;

/// `[safety.<name>]` of the config file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SafetyProfile {
    /// Tools that are refused under this profile.
    pub tools_denied: Vec<String>,
    /// Tools whose calls need an approval under this profile.
    pub approval_required_for: Vec<String>,
}
