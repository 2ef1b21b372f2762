//! The OAuth client for MCP servers that want a login of each person: OAuth 2.1 with PKCE, as the protocol describes it.
//!
//! `discovery` finds the authorization server, `registration` the client that this installation is there, `token` fetches and renews tokens;
//! `http` bounds every request and checks every address that a stranger names; `grant` is what is stored; `connector` joins them for one server.

mod addresses;
mod challenge;
mod connector;
mod discovery;
mod fault;
mod grant;
mod http;
mod registration;
mod services;
mod token;

pub(super) use challenge::Challenge;
pub(super) use connector::Connector;
pub use connector::{ConnectionState, LoginAnswer};
pub use fault::{ConnectFault, FaultKind};
pub(super) use services::LoginSettings;
pub use services::OAuthServices;
