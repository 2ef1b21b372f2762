//! The tools that belong to no product: `remember`, `ask_gpt`, the test tools, and the HTTP tools that operators declare.
//!
//! A tool depends on the contract and, if needed, on a store trait or the HTTP client. It never depends on the runtime.

mod ask_gpt;
mod http_tool;
mod remember;
mod test_tools;

pub use ask_gpt::AskGpt;
pub use http_tool::{ConfigFault, HttpTool, HttpToolConfig, expand};
pub use remember::kernel_tools;
pub use test_tools::test_tools;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
