//! Search in the customer's own documents, and an offer to ask a general model if nothing is found.
//!
//! The API, the command line and `search_knowledge_base` share [`KnowledgeBase`]: the rows, the indexes and, if configured, the
//! embedding model. `ask_gpt` asks the language model directly.

mod answerable;
mod ask_gpt;
mod assent;
mod base;
mod document;
mod embedder;
mod search_tool;

use std::sync::Arc;

use werkruf_contract::{ToolObject, Typed};

pub use base::{KnowledgeBase, SearchAnswer, SearchMode, SearchRequest};
pub use document::Document;
pub use embedder::Embedder;

/// `search_knowledge_base`, ready for the registry.
pub fn knowledge_tools(base: &Arc<KnowledgeBase>) -> Vec<Arc<dyn ToolObject>> {
    vec![Arc::new(Typed::new(search_tool::SearchKnowledgeBase(Arc::clone(base))))]
}

/// `ask_gpt`, ready for the registry.
pub fn ask_gpt_tools() -> Vec<Arc<dyn ToolObject>> {
    vec![Arc::new(Typed::new(ask_gpt::AskGpt))]
}
