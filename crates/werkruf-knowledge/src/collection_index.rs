//! The index of a collection with the last change that it contains and the languages of its documents.
//!
//! Changes are applied in slices of about a millisecond, each under the lock of the index, so that a search never waits longer. A replaced
//! document loses its old chunks in the slice that brings its first new one.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::RwLock;

use super::analysis::{Analysis, IndexedChunk};
use super::background::give_way;
use super::chunks::Chunk;
use super::collection_languages::CollectionLanguages;
use super::index::Index;
use super::language::Language;
use super::rows::{ChangedChunk, ChangedVector, LanguageCount};
use super::vectors::QuantizedVector;

/// Text, removed chunks, vectors and words in one slice.
const SLICE_BYTES: usize = 24_000;
const SLICE_REMOVALS: usize = 16;
const SLICE_VECTORS: usize = 256;
const SLICE_WORDS: usize = 256;

/// A lock that searches share. Waiting tasks get it in the order of their arrival, so neither searches nor changes starve.
pub(super) type SharedIndex = Arc<RwLock<CollectionIndex>>;

/// The numbers of removed chunks by the document that the index has them in.
pub(super) type Removed = HashMap<Arc<str>, Vec<i64>>;

/// The index of one collection.
#[derive(Debug, Default)]
pub(super) struct CollectionIndex {
    pub(super) index: Index,
    /// The last change that was read.
    pub(super) read: i64,
    pub(super) languages: CollectionLanguages,
    documents: DocumentLanguages,
    /// The language in which the chunks of each language code were analysed.
    analysed: HashMap<Option<String>, Language>,
    /// Whether a new index would analyse some chunks in another language.
    outdated: bool,
}

impl CollectionIndex {
    /// An empty index of a collection with documents in these languages.
    pub(super) fn of(languages: &[LanguageCount]) -> Self {
        Self { languages: CollectionLanguages::of(languages), ..Self::default() }
    }

    /// Whether the index should be built again from the rows.
    pub(super) fn needs_rebuild(&self) -> bool {
        self.index.needs_rebuild() || (self.outdated && self.index.parts_are_due())
    }

    /// The documents of these chunks, as far as they are indexed.
    pub(super) fn by_document(&self, chunks: Vec<i64>) -> Removed {
        let mut removed = Removed::new();
        for chunk in chunks {
            if let Some(document) = self.index.document_of(chunk) {
                removed.entry(Arc::clone(document)).or_default().push(chunk);
            }
        }
        removed
    }

    /// The languages of the collection once it also has these chunks. While an index is built they are known from the rows.
    fn languages_with(&self, page: &[ChangedChunk]) -> CollectionLanguages {
        if self.read == 0 && !self.languages.is_empty() {
            return self.languages.clone();
        }
        let mut documents = DocumentLanguages { by_document: HashMap::new(), counts: self.documents.counts.clone() };
        let mut last: Option<&Arc<str>> = None;
        for chunk in page.iter().filter(|chunk| !self.index.contains(chunk.mark.chunk)) {
            if last.replace(&chunk.document_id) != Some(&chunk.document_id) {
                documents.count(chunk.language.as_deref(), chunk.guessed, 1);
                if let Some((replaced, _)) = self.documents.by_document.get(&chunk.document_id) {
                    documents.counts[*replaced].documents -= 1;
                }
            }
        }
        CollectionLanguages::of(&documents.counts)
    }

    fn insert(&mut self, chunk: &NewChunk, removed: &mut Removed) -> bool {
        for old in removed.remove(&chunk.analysis.document).unwrap_or_default() {
            self.remove(old);
        }
        if self.index.contains(chunk.analysis.number) {
            return true;
        }
        let language = chunk.analysis.language;
        self.outdated |= self.analysed.insert(chunk.code.clone(), language).is_some_and(|before| before != language);
        self.documents.add(&chunk.analysis.document, chunk.code.as_deref(), chunk.guessed);
        self.index.insert(&chunk.analysis)
    }

    fn remove(&mut self, chunk: i64) {
        if let Some(document) = self.index.document_of(chunk).cloned() {
            self.documents.remove(&document);
            self.index.remove(chunk);
        }
    }

    /// Everything up to this change has been applied.
    pub(super) fn finish(&mut self, read: i64) {
        self.read = read;
        self.languages = CollectionLanguages::of(&self.documents.counts);
        let present = self.documents.counts.iter().filter(|count| count.documents > 0);
        self.outdated |= present
            .into_iter()
            .any(|count| self.analysed.get(&count.code).is_some_and(|before| *before != self.languages.of_chunk(count.code.as_deref())));
    }
}

/// An analysed chunk.
pub(super) struct NewChunk {
    analysis: Analysis,
    code: Option<String>,
    guessed: bool,
}

/// The languages of the collection once it also has these chunks.
pub(super) async fn languages_with(target: &SharedIndex, page: &[ChangedChunk]) -> CollectionLanguages {
    target.read().await.languages_with(page)
}

/// Analyses chunks. Needs no lock.
pub(super) fn analyse(page: Vec<ChangedChunk>, languages: &CollectionLanguages) -> Vec<NewChunk> {
    let analysed = page.into_iter().map(|chunk| {
        let indexed = IndexedChunk {
            number: chunk.mark.chunk,
            language: Some(languages.of_chunk(chunk.language.as_deref())),
            text: Chunk::indexed(&chunk.title, &chunk.heading, &chunk.content),
            document_id: chunk.document_id,
            ordinal: chunk.position,
        };
        give_way();
        NewChunk { analysis: Analysis::of(&indexed), code: chunk.language, guessed: chunk.guessed }
    });
    analysed.collect()
}

/// Adds chunks. False if the index is full.
pub(super) fn add_chunks(target: &SharedIndex, chunks: Vec<NewChunk>, removed: &mut Removed) -> bool {
    let mut rest = chunks.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut index, mut bytes) = (target.blocking_write(), 0);
        while let Some(chunk) = rest.next_if(|_| bytes < SLICE_BYTES) {
            bytes += chunk.analysis.bytes();
            if !index.insert(&chunk, removed) {
                return false;
            }
        }
        drop(index);
        give_way();
    }
    true
}

/// Removes chunks.
pub(super) fn remove_chunks(target: &SharedIndex, removed: Removed) {
    let removed: Vec<i64> = removed.into_values().flatten().collect();
    for slice in removed.chunks(SLICE_REMOVALS) {
        let mut index = target.blocking_write();
        slice.iter().for_each(|chunk| index.remove(*chunk));
    }
}

/// Sets vectors.
pub(super) fn put_vectors(target: &SharedIndex, page: &[ChangedVector]) {
    for slice in page.chunks(SLICE_VECTORS) {
        let quantized: Vec<_> = slice.iter().filter_map(|new| Some((new.mark.chunk, QuantizedVector::of(&new.vector)?))).collect();
        let mut index = target.blocking_write();
        for (chunk, vector) in &quantized {
            index.index.put_quantized(*chunk, vector);
        }
    }
}

/// Compares the parts of compounds with the vocabulary, one slice from this position. Returns the next position.
pub(super) fn compare_parts(target: &SharedIndex, from: usize) -> Option<usize> {
    if from == 0 {
        target.blocking_write().index.start_comparison();
    }
    let (changed, next) = target.blocking_read().index.compare_parts(from, SLICE_WORDS);
    for slice in changed.chunks(SLICE_REMOVALS) {
        let mut index = target.blocking_write();
        slice.iter().for_each(|(form, parts)| index.index.set_parts(*form, parts));
    }
    next
}

/// The number of indexed documents per language.
#[derive(Debug, Default)]
struct DocumentLanguages {
    /// By document: the position of its language in `counts`, and the number of its chunks.
    by_document: HashMap<Arc<str>, (usize, u32)>,
    counts: Vec<LanguageCount>,
}

impl DocumentLanguages {
    fn count(&mut self, code: Option<&str>, guessed: bool, change: i64) -> usize {
        let known = self.counts.iter().position(|count| count.code.as_deref() == code && count.guessed == guessed);
        let at = known.unwrap_or_else(|| {
            self.counts.push(LanguageCount { code: code.map(str::to_owned), guessed, documents: 0 });
            self.counts.len() - 1
        });
        self.counts[at].documents += change;
        at
    }

    /// Counts a chunk of a document.
    fn add(&mut self, document: &Arc<str>, code: Option<&str>, guessed: bool) {
        if let Some((_, chunks)) = self.by_document.get_mut(document) {
            *chunks += 1;
            return;
        }
        let at = self.count(code, guessed, 1);
        self.by_document.insert(Arc::clone(document), (at, 1));
    }

    fn remove(&mut self, document: &str) {
        let Some((at, chunks)) = self.by_document.get_mut(document) else { return };
        *chunks -= 1;
        if *chunks == 0 {
            self.counts[*at].documents -= 1;
            self.by_document.remove(document);
        }
    }
}

#[cfg(test)]
#[path = "collection_index_tests.rs"]
mod tests;
