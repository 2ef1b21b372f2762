//! The customer's own documents: brought in, found again, and an honest way on when nothing is found.
//!
//! [`KnowledgeBase`] is what the API, the command line and `search_knowledge_base` share: rows, indexes, and the model that makes
//! vectors where one is configured. `ask_gpt` asks the model itself.

mod answerable;
mod ask_gpt;
mod assent;
mod base;
mod bill;
mod document;
mod embedder;
mod search_tool;

use std::sync::Arc;

use werkruf_contract::{ToolObject, Typed};

pub use ask_gpt::Oracle;
pub use base::{KnowledgeBase, SearchAnswer, SearchMode, SearchRequest};
pub use document::Document;
pub use embedder::Embedder;

/// Both tools.
pub fn knowledge_tools(base: &Arc<KnowledgeBase>, oracle: &Arc<Oracle>) -> Vec<Arc<dyn ToolObject>> {
    vec![
        Arc::new(Typed::new(search_tool::SearchKnowledgeBase(Arc::clone(base)))),
        Arc::new(Typed::new(ask_gpt::AskGpt { base: Arc::clone(base), oracle: Arc::clone(oracle) })),
    ]
}
