//! What the configuration file decides about turns. A reload replaces it; a running turn keeps the setup it started with.

use std::collections::HashMap;
use std::sync::Arc;

use werkruf_llm::prices::PriceTable;

use crate::assistant::Assistants;
use crate::channels::Channels;
use crate::redaction::Redaction;
use crate::registry::Registry;
use crate::safety::SafetyProfile;

/// Tools, assistants, channels, safety profiles, prices, the rule for approvals, and secrets.
pub struct Setup {
    pub registry: Registry,
    pub assistants: Assistants,
    pub channels: Channels,
    pub safety: HashMap<String, SafetyProfile>,
    pub prices: Arc<PriceTable>,
    /// Whoever asked cannot approve.
    pub four_eyes: bool,
    /// The server's own secrets, which no result may show.
    pub redaction: Redaction,
    /// The log shows the arguments of calls, not only their names.
    pub log_arguments: bool,
}
