//! The tools that belong to no product: `remember`, `read_result`, `ask_gpt`, the test tools, and the HTTP tools that operators declare.
//!
//! A tool depends on the contract and, if needed, on a store trait or the HTTP client. It never depends on the runtime.

mod ask_gpt;
mod http_tool;
mod read_result;
mod remember;
mod test_tools;

pub use ask_gpt::AskGpt;
pub use http_tool::{ConfigFault, HttpTool, HttpToolConfig, expand};
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
