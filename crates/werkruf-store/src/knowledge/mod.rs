//! Document search: text analysis, chunks, the in-memory index that all databases share, and the rows it is built from.

mod analysis;
mod chunks;
mod collection_index;
mod collection_languages;
mod compounds;
mod identifiers;
mod index;
mod index_loading;
mod language;
mod library;
mod parts;
mod rows;
mod search;
mod stem;
mod stored_terms;
mod vectors;
mod words;

pub use analysis::IndexedChunk;
pub use chunks::{Chunk, chunks};
pub use collection_languages::CollectionLanguages;
pub use index::Index;
pub use language::Language;
pub use library::{Library, SearchQuery, SearchResult};
pub use rows::{
    Added, ChangeMark, ChangedChunk, ChangedVector, ChunkRow, CollectionRow, DEFAULT_COLLECTION, DocumentRow, Knowledge, LanguageCount,
    NewDocument, NewDocuments, NewVector, REMEMBERED_CHANGES, UnembeddedChunk,
};
pub use search::{Hit, IndexQuery};
pub use stored_terms::{TermScan, stored_terms};

/// The version of the chunking. It must change when documents would be split differently. It is part of a document's digest, so that an
/// unchanged document is split again when it is sent again.
pub const CUT: &str = "2";

/// The language of a text, if it can be guessed.
pub fn guess_language(text: &str) -> Option<Language> {
    let text = words::normal(text);
    language::guess(words::tokens(&text).iter().map(|token| token.word))
}
