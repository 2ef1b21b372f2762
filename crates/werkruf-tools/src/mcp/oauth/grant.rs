//! What is stored about a connection, encrypted as a whole.

use serde::{Deserialize, Serialize};
use werkruf_contract::Uuid;

/// How this installation is known to an authorization server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RegisteredClient {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    /// `none`, `client_secret_basic` or `client_secret_post`.
    pub(super) auth_method: String,
}

/// Where tokens of a connection come from, and for what.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct TokenSource {
    /// The address of the MCP server: a token is sent nowhere else.
    pub(super) server: String,
    pub(super) resource: String,
    pub(super) issuer: String,
    pub(super) token: String,
    pub(super) revoke: Option<String>,
    pub(super) client: RegisteredClient,
}

/// A login that waits for its answer.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingLogin {
    pub(super) source: TokenSource,
    pub(super) verifier: String,
    pub(super) redirect: String,
    pub(super) scope: Option<String>,
    /// Whether the answer must name its issuer.
    pub(super) names_issuer: bool,
}

/// The tokens of a person.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Grant {
    /// Names the login that the tokens come from: sessions with the server belong to one login.
    pub(super) account: Uuid,
    pub(super) source: TokenSource,
    /// `None` after the authorization server has refused to renew it.
    pub(super) access: Option<String>,
    pub(super) refresh: Option<String>,
    pub(super) scope: Option<String>,
}

impl Grant {
    /// Whether the tokens are those of another grant, however they are encrypted.
    pub(super) fn has_tokens_of(&self, other: &Self) -> bool {
        self.account == other.account && self.access == other.access && self.refresh == other.refresh
    }
}
