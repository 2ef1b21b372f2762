//! OpenAI Chat Completions, and the servers that speak almost the same.
//!
//! payloads → `decode` → chunks → `assemble` → one answer → `decide` (may its calls run?).
//! `encode` is the way out.

mod assemble;
mod decide;
mod decode;
mod encode;

/// A Chat Completions server.
pub type ChatProvider = crate::provider::HttpProvider<encode::Dialect>;

/// Reads one answer of this API.
pub(crate) type ChatReader = crate::reading::Reader<assemble::Assembly>;

/// The parts on their own, for whoever feeds them anything.
#[cfg(any(test, fuzzing))]
pub(crate) mod parts {
    pub(crate) use super::assemble::Assembly;
    pub(crate) use super::decode::decode;
}
