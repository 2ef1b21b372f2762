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
