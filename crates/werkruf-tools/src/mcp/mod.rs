//! The tools of MCP servers that operators declare in the config file, over streamable HTTP or as a program of their own.
//!
//! `servers` has all of them, `session` keeps the connection to one, `offer` compares what it offers with the pinned definitions, `tool` calls one of its
//! tools. Where each person has an account at the server, `oauth` logs people in, `personal` has a connection for each of them, and `personal_list`
//! lists the tools. A server is a stranger: what it sends is bounded (`http_client`, `lines`), and whatever it does harms its own calls only.

mod bearer;
mod child;
mod config;
mod definition;
mod http_client;
mod lines;
mod link;
mod oauth;
mod offer;
mod personal;
mod personal_list;
mod result;
mod servers;
mod session;
mod tool;

pub use config::{McpServerConfig, McpToolSettings};
pub use oauth::{ConnectFault, ConnectionState, FaultKind, LoginAnswer, OAuthServices};
pub use personal::{ConnectLink, LoginStart, PersonalServer};
pub use servers::{McpServerState, McpServers, McpServices, OfferedTool};
