//! The OAuth client for MCP servers that want a login of each person: OAuth 2.1 with PKCE, as the protocol describes it.
//!
//! `discovery` finds the authorization server, `registration` the client that this installation is there, `token` asks for tokens and
//! `renewal` keeps them fresh; `http` bounds every request and checks every address that a stranger names; `grant` is what is stored; `site` is one server,
//! and `connector` joins all of it.

mod addresses;
mod challenge;
mod connector;
mod discovery;
mod fault;
mod grant;
mod http;
mod registration;
mod renewal;
mod services;
mod site;
mod token;

pub(super) use challenge::Challenge;
pub(super) use connector::Connector;
pub use connector::{ConnectionState, LoginAnswer};
pub use fault::{ConnectFault, FaultKind};
pub(super) use renewal::AccountToken;
pub(super) use services::LoginSettings;
pub use services::OAuthServices;
