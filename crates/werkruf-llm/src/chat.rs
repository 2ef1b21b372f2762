//! OpenAI Chat Completions, and servers with an almost identical API.
//!
//! Responses: payloads → `decode` → chunks → `assemble` → one answer; `state` decides whether its calls may run.
//! Requests: `encode`.

mod assemble;
mod decode;
mod encode;
mod state;

/// A Chat Completions server.
pub type ChatProvider = crate::provider::HttpProvider<encode::Dialect>;

/// Reads one answer of this API.
pub(crate) type ChatReader = crate::reader::Reader<assemble::Assembly>;

/// The stages of the decoder, for tests that call each stage alone.
#[cfg(any(test, fuzzing))]
pub(crate) mod internals {
    pub(crate) use super::assemble::Assembly;
    pub(crate) use super::decode::decode;
}
