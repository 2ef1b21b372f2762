//! What the configuration file decides about turns. A reload replaces it; a running turn keeps the setup it started with.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::SignedDuration;
use werkruf_llm::prices::PriceTable;

use crate::assistant::Assistants;
use crate::channels::Channels;
use crate::redaction::Redaction;
use crate::registry::Registry;
use crate::safety::SafetyProfile;

/// When the operator is alerted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertSettings {
    /// An approval that nobody decided for this long.
    pub approval_waiting: SignedDuration,
    /// The file of the database, whose file system is watched.
    pub database: Option<PathBuf>,
    /// Less free space than this; `None`: less than 1 GiB, or than 5 percent.
    pub disk_free_mib: Option<u64>,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self { approval_waiting: SignedDuration::from_mins(15), database: None, disk_free_mib: None }
    }
}

/// Tools, assistants, channels, safety profiles, prices, the rule for approvals, and secrets.
pub struct Setup {
    pub registry: Registry,
    pub assistants: Assistants,
    pub channels: Channels,
    pub safety: HashMap<String, SafetyProfile>,
    pub prices: Arc<PriceTable>,
    /// Whoever asked cannot approve.
    pub four_eyes: bool,
    /// Who decides whether the model's provider may run a call for which it asks.
    pub provider_role: String,
    /// The server's own secrets, which no result may show.
    pub redaction: Redaction,
    /// The log shows the arguments of calls, not only their names.
    pub log_arguments: bool,
    pub alerts: AlertSettings,
}
