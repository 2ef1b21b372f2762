//! OpenAI Responses, and the servers that speak almost the same.
//!
//! payloads → `decode` (with `item`) → events → `assemble` → one answer → `decide` (may its calls run?).
//! `carried` is what an answer leaves for the next request, `encode` the way out, `client` the server it goes to.
//! Inside a stream an item is known by its `output_index`: ids may be absent, and some servers rotate them.

mod assemble;
mod carried;
mod client;
mod decide;
mod decode;
mod encode;
mod item;

pub use client::ResponsesProvider;

/// Reads one answer of this API.
pub(crate) type ResponsesReader = crate::reading::Reader<assemble::Assembly>;
