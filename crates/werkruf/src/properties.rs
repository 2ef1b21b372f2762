//! Properties of the parsers of request bodies and headers that must hold for any input.
//!
//! The property tests of this crate and the targets in `fuzz/` call these functions; each panics when its property does not hold, and returns whether
//! the parser accepted the input.

pub use crate::api::properties::{chat_body, context_headers, invoke_body, json_fields, knowledge_documents, upload, workspace_import};
pub use crate::openai::properties::{chat_request, responses_request};
pub use crate::whatsapp::payload::whatsapp_payload;

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
