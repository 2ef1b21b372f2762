//! Normalises a text, splits it into tokens of letters and digits, and computes a digest for each term.
//!
//! Terms are stored as 64-bit digests, because as strings they would take most of the memory of a large index.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// A run of letters and digits, with its position in the normalised text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) word: &'a str,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// NFKC and lower case: the form in which all texts are compared.
pub(super) fn normal(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.nfkc().flat_map(char::to_lowercase).collect()
}

/// The tokens of a normalised text.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::with_capacity(text.len() / 6);
    let mut start = None;
    for (at, letter) in text.char_indices() {
        match (letter.is_alphanumeric(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                tokens.push(Token { word: &text[from..at], start: from, end: at });
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        tokens.push(Token { word: &text[from..], start: from, end: text.len() });
    }
    tokens
}

/// The word without accents, umlauts and ß, so that "Prämie", "Pramie" and "PRÄMIE" are equal.
pub(super) fn folded(word: &str) -> String {
    if word.is_ascii() {
        return word.to_owned();
    }
    let mut out = String::with_capacity(word.len());
    for letter in word.nfkd() {
        match letter {
            'ß' => out.push_str("ss"),
            _ if is_combining_mark(letter) => {}
            _ => out.push(letter),
        }
    }
    out
}

/// One spelling for ä, ae and a, to compare the parts of compounds.
pub(super) fn flat(word: &str) -> String {
    let folded = folded(word);
    if !folded.contains('e') {
        return folded;
    }
    folded.replace("ae", "a").replace("oe", "o").replace("ue", "u")
}

/// Whether a word is letters only.
pub(super) fn is_alphabetic(word: &str) -> bool {
    word.chars().all(char::is_alphabetic)
}

/// How many letters a word has.
pub(super) fn letters(word: &str) -> usize {
    if word.is_ascii() { word.len() } else { word.chars().count() }
}

/// The digest of a term; `mark` separates terms of different kinds. Equal on every machine and in every release.
pub(super) fn digest(mark: u8, term: &str) -> u64 {
    finish(roll(roll_byte(START, mark), term.as_bytes()))
}

pub(super) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, because it yields the digests of all prefixes of a word in one pass.
pub(super) const fn roll_byte(state: u64, byte: u8) -> u64 {
    (state ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
}

pub(super) fn roll(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, byte| roll_byte(state, *byte))
}

/// Mixes the bits, because the low bits of FNV are weak and hash tables use them.
pub(super) const fn finish(mut state: u64) -> u64 {
    state ^= state >> 33;
    state = state.wrapping_mul(0xff51_afd7_ed55_8ccd);
    state ^ (state >> 33)
}

/// A map with digests as keys, which are already well distributed.
pub(super) type DigestMap<V> = std::collections::HashMap<u64, V, std::hash::BuildHasherDefault<IdentityHasher>>;

/// Uses a digest as its own hash.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct IdentityHasher(u64);

impl std::hash::Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = roll(self.0, bytes);
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}
