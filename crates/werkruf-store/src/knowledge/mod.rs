//! What the house knows from documents: analysis, chunks, one index for every database, and the rows it is fed from.

mod chunks;
mod compounds;
mod identifiers;
mod index;
mod language;
mod library;
mod rows;
mod search;
mod spoken;
mod stem;
mod vectors;
mod words;

pub use chunks::{Chunk, chunks};
pub use index::{Index, IndexedChunk};
pub use language::Language;
pub use library::{Library, SearchQuery, SearchResult};
pub use rows::{
    Added, ChangeMark, ChangedChunk, ChangedVector, ChunkRow, CollectionRow, DEFAULT_COLLECTION, DocumentRow, Knowledge, LanguageCount,
    NewDocument, NewDocuments, NewVector, REMEMBERED_CHANGES, UnembeddedChunk, UsageOwner,
};
pub use search::{Hit, Question};
pub use spoken::CollectionLanguages;

/// Changes whenever the same document would be cut otherwise; part of a document's digest, so that it is cut anew when it is sent again.
pub const CUT: &str = "2";

/// The language a text is in, where enough speaks for one.
pub fn guess_language(text: &str) -> Option<Language> {
    let text = words::normal(text);
    language::guess(words::pieces(&text).iter().map(|piece| piece.word))
}
