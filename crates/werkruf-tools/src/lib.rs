//! The tools that belong to no product: `remember`, `read_result`, `ask_gpt`, the test tools, and those that operators
//! declare: HTTP tools, SQL tools, and the tools of MCP servers.
//!
//! A tool depends on the contract and, if needed, on a store trait or the HTTP client. It never depends on the runtime.

mod ask_gpt;
mod declaration;
mod declared_fields;
mod http_tool;
mod mcp;
mod read_result;
mod remember;
mod sql_tool;
mod test_tools;

pub use ask_gpt::AskGpt;
pub use declaration::{ToolConfig, ToolSection};
pub use declared_fields::{ConfigFault, expand};
pub use http_tool::{HttpTool, HttpToolConfig};
pub use mcp::{
    ConnectFault, ConnectLink, ConnectionState, FaultKind, LoginAnswer, LoginStart, McpServerConfig, McpServerState, McpServers,
    McpServices, McpToolSettings, OAuthServices, OfferedTool, PersonalServer,
};
pub use sql_tool::{SqlTool, SqlToolConfig};
pub use test_tools::test_tools;

use std::sync::Arc;

use werkruf_contract::{Clock, ToolObject, Typed};

/// The tools that every server has, whatever its modules.
pub fn kernel_tools(clock: Clock) -> Vec<Arc<dyn ToolObject>> {
    vec![Arc::new(Typed::new(remember::Remember(clock))), Arc::new(Typed::new(read_result::ReadResult))]
}

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
