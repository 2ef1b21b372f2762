//! The languages with their own text analysis, and language guessing.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::words::folded;

/// A language with its own stemmer and function words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    De,
    En,
    Es,
}

impl Language {
    /// All languages, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::De, Self::En, Self::Es];

    /// The language code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::De => "de",
            Self::En => "en",
            Self::Es => "es",
        }
    }

    /// The language of a code or locale: `de`, `de-AT`, `ES_mx`.
    pub fn parse(code: &str) -> Option<Self> {
        let code = code.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase();
        Self::ALL.into_iter().find(|language| language.code() == code)
    }

    /// Whether the word, which must be normalised, is a function word of the language.
    pub(super) fn has_function_word(self, word: &str) -> bool {
        FUNCTION_WORDS[self as usize].contains(word)
    }
}

/// Words without a topic, with and without accents, because users omit accents.
static FUNCTION_WORDS: LazyLock<[HashSet<String>; 3]> = LazyLock::new(|| {
    [GERMAN, ENGLISH, SPANISH].map(|list| list.split_whitespace().flat_map(|word| [word.to_owned(), folded(word)]).collect())
});

const GERMAN: &str = "der die das den dem des ein eine einer eines einem einen und oder aber nicht kein keine ist sind war waren wird werden \
    wurde wurden hat haben hatte hatten in im an am auf aus bei mit nach von vom zu zum zur für über unter um durch als auch es er sie wir \
    ihr ich sich was wer wie wo wann warum welche welcher welches welchen wen wem dass ob so noch nur sehr sein seine seiner ihre ihrer \
    dieser diese dieses man kann";
const ENGLISH: &str = "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to \
    was will with what which who whom how when where why do does did can could should would has have had been its from about than were";
const SPANISH: &str = "el la los las un una unos unas y o u e pero no de del a al en con por para sin sobre que qué quién quien cuál cuales \
    cuáles cual cómo como cuándo cuando dónde donde cuánto cuántos cuántas es son fue fueron era eran ser ha han se su sus lo le les este \
    esta estos estas ese esa más muy entre desde hasta";

/// The required lead over the second-best language.
const MARGIN: usize = 2;

/// The language of these normalised words, or `None` if no language has a clear lead.
pub(super) fn guess<'a>(words: impl Iterator<Item = &'a str>) -> Option<Language> {
    let mut signs = [0_usize; 3];
    for word in words {
        for language in Language::ALL {
            signs[language as usize] += usize::from(language.has_function_word(word));
        }
        if !word.is_ascii() {
            let count = |letters: &str| 2 * word.chars().filter(|letter| letters.contains(*letter)).count();
            signs[Language::De as usize] += count("äöüß");
            signs[Language::Es as usize] += count("ñáíóú");
        }
    }
    let best = Language::ALL.into_iter().max_by_key(|language| (signs[*language as usize], std::cmp::Reverse(*language)))?;
    let next = Language::ALL.into_iter().filter(|language| *language != best).map(|language| signs[language as usize]).max()?;
    (signs[best as usize] >= next + MARGIN).then_some(best)
}
