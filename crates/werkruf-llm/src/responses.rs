//! OpenAI Responses, and the servers that speak almost the same.
//!
//! payloads → `decode` (with `item`) → events → `assemble` → one answer → `decide` (may its calls run?).
//! `carried` is what an answer leaves for the next request, `encode` the way out.
//! Inside a stream an item is known by its `output_index`: ids may be absent, and some servers rotate them.

mod assemble;
mod carried;
mod decide;
mod decode;
mod encode;
mod item;

/// A Responses server.
pub type ResponsesProvider = crate::provider::HttpProvider<encode::Dialect>;

/// Reads one answer of this API.
pub(crate) type ResponsesReader = crate::reading::Reader<assemble::Assembly>;

/// The parts on their own, for whoever feeds them anything.
#[cfg(any(test, fuzzing))]
pub(crate) mod parts {
    use serde_json::Value;

    pub(crate) use super::assemble::Assembly;
    pub(crate) use super::decode::decode;
    use super::encode::{self, Dialect};
    use crate::ModelRequest;
    use crate::carry::Origin;
    use crate::encoding::ToolCache;

    fn origin() -> Origin {
        Origin { api: "responses", provider: String::new(), model: String::new() }
    }

    /// As if this server had left it.
    pub(crate) fn sealed(content: Value) -> Value {
        origin().seal(content).unwrap_or_default()
    }

    /// The body for this server; empty where there is none.
    pub(crate) fn encode(request: &ModelRequest, pairs: bool) -> Vec<u8> {
        encode::encode(request, &origin(), 1, Dialect { pairs }, &ToolCache::new(encode::encode_tools)).unwrap_or_default()
    }
}
