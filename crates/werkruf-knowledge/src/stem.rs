//! The folded stem of a word in its language. German spelled with ae, oe, ue is converted to umlauts before stemming.

use std::borrow::Cow;

use frostem::{Algorithm, Stemmer};

use super::language::Language;
use super::words::folded;

/// The stemmers of all languages.
pub(super) struct Stems([Stemmer; 3]);

impl Default for Stems {
    fn default() -> Self {
        Self([Algorithm::German, Algorithm::English, Algorithm::Spanish].map(Stemmer::new))
    }
}

impl std::fmt::Debug for Stems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stems")
    }
}

impl Stems {
    /// The folded stem of a normalised word.
    pub(super) fn of(&self, word: &str, language: Language) -> String {
        let word = if language == Language::De { umlauts(word) } else { Cow::Borrowed(word) };
        folded(&self.0[language as usize].stem(&word))
    }
}

/// Converts ae, oe, ue to ä, ö, ü, except after another vowel or q, where they are two sounds: "neue", "Frauen", "Quelle".
fn umlauts(word: &str) -> Cow<'_, str> {
    if !["ae", "oe", "ue"].iter().any(|pair| word.contains(pair)) {
        return Cow::Borrowed(word);
    }
    let letters: Vec<char> = word.chars().collect();
    let mut out = String::with_capacity(word.len());
    let mut at = 0;
    while at < letters.len() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let free = !before.is_some_and(|letter| "aeouq".contains(letter));
        let umlaut = match (letters[at], letters.get(at + 1)) {
            ('a', Some('e')) => Some('ä'),
            ('o', Some('e')) => Some('ö'),
            ('u', Some('e')) => Some('ü'),
            _ => None,
        };
        match umlaut.filter(|_| free) {
            Some(umlaut) => {
                out.push(umlaut);
                at += 2;
            }
            None => {
                out.push(letters[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflections_and_spellings_have_the_same_stem() {
        let stems = Stems::default();
        let same = |language, words: &[&str]| {
            let first = stems.of(words[0], language);
            for word in words {
                assert_eq!(stems.of(word, language), first, "{word}");
            }
        };
        same(Language::De, &["prämie", "praemie", "prämien", "praemien"]);
        same(Language::De, &["gebühr", "gebuehren", "gebühren"]);
        same(Language::De, &["größe", "groesse", "grösse"]);
        same(Language::En, &["award", "awards"]);
        same(Language::Es, &["tarifa", "tarifas"]);
    }

    #[test]
    fn vowel_pairs_are_not_umlauts_after_a_vowel() {
        for word in ["neue", "frauen", "quelle", "bauen"] {
            assert_eq!(umlauts(word), word);
        }
        assert_eq!(umlauts("ueber"), "über");
    }
}
