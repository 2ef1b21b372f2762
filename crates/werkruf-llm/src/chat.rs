//! OpenAI Chat Completions, and the servers that speak almost the same.
//!
//! payloads → `decode` → chunks → `assemble` → one answer → `decide` (may its calls run?).
//! `encode` is the way out, `client` the server it goes to.

mod assemble;
mod client;
mod decide;
mod decode;
mod encode;

pub use client::ChatProvider;

/// Reads one answer of this API.
pub(crate) type ChatReader = crate::reading::Reader<assemble::Assembly>;

/// The parts on their own, for whoever feeds them anything.
#[cfg(any(test, fuzzing))]
pub(crate) mod parts {
    pub(crate) use super::assemble::Assembly;
    pub(crate) use super::decode::decode;
}
