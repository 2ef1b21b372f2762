//! The tools this server brings along, one file or folder each, and the tools operators declare.
//!
//! A tool knows the contract and, where it needs one, a store trait or the HTTP client. It never sees the runtime:
//! both meet in `main`, which registers what the functions here return.

mod http_tool;
mod knowledge;
mod remember;
mod search_flights;
mod select_itinerary;
mod test_tools;
mod workspace;

pub use http_tool::{ConfigFault, HttpTool, HttpToolConfig, expand};
pub use knowledge::{Document, Embedder, KnowledgeBase, Oracle, SearchAnswer, SearchMode, SearchRequest, knowledge_tools};
pub use search_flights::{
    AmadeusConfig, Cabin, Caller as FlightCaller, DuffelConfig, Flights, FlightsConfig, ProviderName, Seal, SeatsaeroConfig, flight_tools,
    inspect as inspect_flights,
};
pub use test_tools::test_tools;
pub use workspace::workspace_tools;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
