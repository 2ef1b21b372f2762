//! The module `knowledge`: search in the customer's own documents. Text analysis, chunks, the index in memory, rows, SQL and the tool.
//!
//! The API, the command line and `search_knowledge_base` share [`KnowledgeBase`]: the rows, the indexes and, if configured, the
//! embedding model.

mod analysis;
mod answerable;
mod background;
mod base;
mod chunks;
mod collection_index;
mod collection_languages;
mod compounds;
mod deletion;
mod document;
mod embedder;
mod identifiers;
mod index;
mod index_loading;
mod language;
mod library;
mod pace;
mod parts;
mod postgres;
mod postgres_write;
mod reading;
mod rights;
mod rows;
mod schema;
mod search;
mod search_tool;
mod sqlite;
mod sqlite_write;
mod stem;
mod stored_terms;
mod texts;
mod vectors;
mod words;

use std::sync::Arc;

use werkruf_contract::{ToolObject, Typed};
use werkruf_store::{Module, ModuleSchema};

pub use analysis::IndexedChunk;
pub use background::compute;
pub use base::{KnowledgeBase, SearchAnswer, SearchMode, SearchRequest};
pub use chunks::{Chunk, chunks};
pub use collection_languages::CollectionLanguages;
pub use document::Document;
pub use embedder::Embedder;
pub use index::Index;
pub use language::{Guess, Language};
pub use library::{Library, SearchQuery, SearchResult};
pub use rights::{CollectionRights, EVERYBODY, Grantee, NewRights, ReadableCollection};
pub use rows::{
    Added, ChangeMark, ChangePage, ChangedChunk, ChangedVector, ChunkRow, CollectionRow, DEFAULT_COLLECTION, DocumentRow, Knowledge,
    LanguageCount, NewDocument, NewDocuments, NewVector, REMEMBERED_CHANGES, UnembeddedChunk,
};
pub use schema::SCHEMA;
pub use search::{Hit, IndexQuery};
pub use stored_terms::{TermScan, stored_terms};
pub use werkruf_contract::Trust;

/// The version of the chunking and of the language guess. It must change when documents would be split or guessed differently. It is part of a
/// document's digest, so that an unchanged document is split again when it is sent again.
pub const CUT: &str = "3";

/// The language of a text.
pub fn guess_language(text: &str) -> Guess {
    let is_prose = language::is_prose(text);
    let text = words::normal(text);
    language::guess(words::tokens(&text).iter().map(|token| token.word), is_prose)
}

impl Module for KnowledgeBase {
    fn schema(&self) -> &'static ModuleSchema {
        SCHEMA
    }

    fn tools(self: Arc<Self>) -> Vec<Arc<dyn ToolObject>> {
        vec![Arc::new(Typed::new(search_tool::SearchKnowledgeBase(self)))]
    }
}

#[cfg(test)]
mod story_tests;
#[cfg(test)]
#[path = "../../../tests/postgres/fresh.rs"]
mod testbed;
