//! Splits a sentence into words and compares words.

use std::ops::Range;

use werkruf_contract::fold;

use super::vocabulary::AND_WORDS;

/// One word and its position in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) raw: &'a str,
    pub(super) folded: String,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Token<'_> {
    /// The number that the word spells; `15th` counts too.
    pub(super) fn number(&self) -> Option<i64> {
        let digits = self.folded.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let suffix = &self.folded[digits.len()..];
        if digits.len() > 9 || !["", "st", "nd", "rd", "th"].contains(&suffix) { None } else { digits.parse().ok() }
    }
}

pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_alphanumeric(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                tokens.push(Token { raw: &text[from..at], folded: fold(&text[from..at]), start: from, end: at });
                start = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    tokens
}

pub(super) fn clauses(tokens: &[Token<'_>]) -> Vec<Range<usize>> {
    let mut clauses = Vec::new();
    let mut start = 0;
    for (at, token) in tokens.iter().enumerate() {
        if AND_WORDS.contains(token.folded.as_str()) {
            clauses.push(start..at);
            start = at + 1;
        }
    }
    clauses.push(start..tokens.len());
    clauses
}

/// Endings that may follow a noun: plurals, cases and "list". With any other ending it is a different word.
pub(super) fn is_ending(rest: &str) -> bool {
    ["", "n", "s", "es", "en", "ns", "nliste", "liste", "list", "nlisten", "kel", "ones", "on"].contains(&rest)
}

/// Whether one letter is missing, doubled or swapped with its neighbour. A replaced letter does not count, because that makes other words.
pub(super) fn is_typo(word: &str, meant: &str) -> bool {
    let (word, meant): (Vec<char>, Vec<char>) = (word.chars().collect(), meant.chars().collect());
    if word == meant || word.first() != meant.first() {
        return false;
    }
    let same = word.iter().zip(&meant).take_while(|(a, b)| a == b).count();
    match (word.len() + 1).cmp(&(meant.len() + 1)) {
        std::cmp::Ordering::Less => word.len() + 1 == meant.len() && word[same..] == meant[same + 1..],
        std::cmp::Ordering::Greater => {
            word.len() == meant.len() + 1 && same > 0 && word[same] == word[same - 1] && word[same + 1..] == meant[same..]
        }
        std::cmp::Ordering::Equal => {
            same + 1 < word.len() && word[same] == meant[same + 1] && word[same + 1] == meant[same] && word[same + 2..] == meant[same + 2..]
        }
    }
}
