//! The analysis of a chunk that needs no index: it runs before the lock of the index is taken.

use std::ops::Range;
use std::sync::Arc;

use super::identifiers::identifiers;
use super::language::Language;
use super::words::{digest, normal, tokens};

/// A chunk to index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedChunk {
    pub number: i64,
    pub document_id: Arc<str>,
    pub ordinal: u32,
    pub language: Option<Language>,
    /// Title, heading path and content.
    pub text: String,
}

/// The words and identifiers of a chunk.
#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) number: i64,
    pub(super) document: Arc<str>,
    pub(super) ordinal: u32,
    pub(super) language: Language,
    text: String,
    /// The words without function words: their positions in the text, and the digests of their forms.
    words: Vec<(Range<usize>, u64)>,
    pub(super) names: Vec<String>,
}

impl Analysis {
    pub(super) fn of(chunk: &IndexedChunk) -> Self {
        let language = chunk.language.unwrap_or(Language::En);
        let text = normal(&chunk.text);
        let tokens = tokens(&text);
        let content = tokens.iter().filter(|token| !language.has_function_word(token.word));
        let words = content.map(|token| (token.start..token.end, form_key(language, token.word))).collect();
        let names = identifiers(&text, &tokens);
        Self { number: chunk.number, document: Arc::clone(&chunk.document_id), ordinal: chunk.ordinal, language, words, names, text }
    }

    /// The words with the digests of their forms.
    pub(super) fn words(&self) -> impl Iterator<Item = (&str, u64)> {
        self.words.iter().map(|(range, key)| (&self.text[range.clone()], *key))
    }

    /// The size of the text, as a measure of the work.
    pub(super) const fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// The digest of a word as written, in a language.
pub(super) fn form_key(language: Language, word: &str) -> u64 {
    digest(b'0' + language as u8, word)
}
