//! The tools of MCP servers that operators declare in the config file, over streamable HTTP or as a program of their own.
//!
//! `servers` has all of them, `session` keeps the connection to one, `offer` compares what it offers with the pinned definitions, `tool` calls one of its
//! tools. A server is a stranger: what it sends is bounded (`http_client`, `lines`), and whatever it does harms its own calls only.

mod child;
mod config;
mod definition;
mod http_client;
mod lines;
mod link;
mod offer;
mod result;
mod servers;
mod session;
mod tool;

pub use config::{McpServerConfig, McpToolSettings};
pub use servers::{McpServerState, McpServers, McpServices};
