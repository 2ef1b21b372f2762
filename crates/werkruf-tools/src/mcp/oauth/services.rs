//! What the OAuth client needs: storage, encryption, time, randomness, and what the configuration says.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use werkruf_contract::Clock;
use werkruf_llm::Egress;
use werkruf_store::{ConnectionStore, Seal};

/// What connectors of all servers share.
#[derive(Clone)]
pub struct OAuthServices {
    pub store: Arc<dyn ConnectionStore>,
    pub seal: Seal,
    pub clock: Clock,
    pub egress: Egress,
    /// For work with tokens that must not end with its caller.
    pub tasks: TaskTracker,
    /// Random bytes for secrets.
    pub random: fn() -> [u8; 32],
    /// Where people reach this installation, without a slash at the end.
    pub base_url: Arc<dyn Fn() -> String + Send + Sync>,
}

/// What the configuration says about the login at a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::mcp) struct LoginSettings {
    pub(in crate::mcp) client_id: Option<String>,
    pub(in crate::mcp) client_secret: Option<String>,
    pub(in crate::mcp) scopes: Vec<String>,
    /// The only authorization server that is used; `None`: the one that the server names.
    pub(in crate::mcp) issuer: Option<String>,
}
