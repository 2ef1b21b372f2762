//! The built-in tools, one file or folder each, and the HTTP tools that operators declare.
//!
//! A tool depends on the contract and, if needed, on a store trait or the HTTP client. It never depends on the runtime.
//! `main` registers the tools that the functions here return.

mod caller;
mod http_tool;
mod knowledge;
mod read_failure;
mod remember;
mod search_flights;
mod select_itinerary;
mod test_tools;
mod workspace;

pub use http_tool::{ConfigFault, HttpTool, HttpToolConfig, expand};
pub use knowledge::{Document, Embedder, KnowledgeBase, SearchAnswer, SearchMode, SearchRequest, ask_gpt_tools, knowledge_tools};
pub use remember::kernel_tools;
pub use search_flights::{
    AmadeusConfig, Cabin, Caller as FlightCaller, DuffelConfig, Flights, FlightsConfig, ProviderName, Seal, SeatsaeroConfig, flight_tools,
    inspect as inspect_flights,
};
pub use test_tools::test_tools;
pub use workspace::workspace_tools;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
