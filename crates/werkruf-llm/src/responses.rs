//! OpenAI Responses, and servers with an almost identical API.
//!
//! Responses: payloads → `decode` (with `item`) → events → `assemble` → one answer; `state` decides whether its calls may run.
//! Requests: `encode`, with `carried` for the data that an answer must send back in the next request.
//! An item is identified by its `output_index`, because ids may be absent and some servers change them within a stream.

mod assemble;
mod carried;
mod decode;
mod encode;
mod item;
mod state;

/// A Responses server.
pub type ResponsesProvider = crate::provider::HttpProvider<encode::Dialect>;

/// Reads one answer of this API.
pub(crate) type ResponsesReader = crate::reader::Reader<assemble::Assembly>;

/// The stages of the decoder and the encoder, for tests that call each alone.
#[cfg(any(test, fuzzing))]
pub(crate) mod internals {
    use serde_json::Value;

    pub(crate) use super::assemble::Assembly;
    pub(crate) use super::decode::decode;
    use super::encode::Dialect;
    use crate::ModelRequest;
    use crate::carry::Origin;
    use crate::encoding::ToolCache;
    use crate::provider::Api;

    fn origin() -> Origin {
        Origin { api: "responses", provider: String::new(), model: String::new() }
    }

    /// Labels content as if this server had sent it.
    pub(crate) fn labelled(content: Value) -> Value {
        origin().label(content).unwrap_or_default()
    }

    /// The body for this server; empty if encoding fails.
    pub(crate) fn encode(request: &ModelRequest, pairs: bool) -> Vec<u8> {
        Dialect { pairs }.body(request, &origin(), 1, &ToolCache::new(Dialect::tools)).unwrap_or_default()
    }
}
