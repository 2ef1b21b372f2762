//! The languages of a collection, and how much its vectors may say because of them.

use super::language::Language;
use super::rows::LanguageCount;

/// The vectors' weight where their model knows the collection's languages, and where it does not.
const FIT: f32 = 0.6;
const UNFIT: f32 = 0.4;
/// A guessed language counts from one document in this many: a short text is easily taken for another language.
const RARE: i64 = 50;

/// What a collection speaks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionLanguages {
    codes: Vec<String>,
    analysed: Vec<Language>,
    main: Option<Language>,
}

impl CollectionLanguages {
    /// From the documents per language.
    pub fn of(rows: &[LanguageCount]) -> Self {
        let all: i64 = rows.iter().filter(|row| row.code.is_some()).map(|row| row.documents).sum();
        let counts = |row: &&LanguageCount| !row.guessed || row.documents * RARE >= all;
        let mut codes: Vec<String> = rows.iter().filter(counts).filter_map(|row| row.code.clone()).collect();
        codes.sort_unstable();
        codes.dedup();
        let analysed: Vec<Language> =
            Language::ALL.into_iter().filter(|one| codes.iter().any(|code| Language::parse(code) == Some(*one))).collect();
        let count = |one: Language| -> i64 {
            rows.iter().filter(|row| row.code.as_deref().and_then(Language::parse) == Some(one)).map(|row| row.documents).sum()
        };
        let main = analysed.iter().copied().max_by_key(|one| (count(*one), std::cmp::Reverse(*one)));
        Self { codes, analysed, main }
    }

    /// Codes as people write them.
    pub fn codes(&self) -> &[String] {
        &self.codes
    }

    /// Those with an analysis of their own.
    pub fn languages(&self) -> &[Language] {
        &self.analysed
    }

    /// How a chunk is analysed: in its language, or in the one most of the collection is in.
    pub(super) fn of_chunk(&self, code: Option<&str>) -> Language {
        let own = code.and_then(Language::parse).filter(|own| self.analysed.contains(own));
        own.or(self.main).unwrap_or(Language::En)
    }

    /// The vectors' weight with a model that knows these languages.
    pub fn alpha(&self, model: &[String]) -> f32 {
        let known = |code: &String| model.iter().any(|other| base(other) == base(code));
        if !self.codes.is_empty() && self.codes.iter().all(known) { FIT } else { UNFIT }
    }
}

fn base(code: &str) -> String {
    code.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(code: &str, guessed: bool, documents: i64) -> LanguageCount {
        LanguageCount { code: Some(code.to_owned()), guessed, documents }
    }

    #[test]
    fn the_weight_follows_the_languages() {
        let english = ["en".to_owned()];
        assert!((CollectionLanguages::of(&[row("en", true, 9)]).alpha(&english) - FIT).abs() < f32::EPSILON);
        assert!((CollectionLanguages::of(&[row("en", true, 9), row("de", true, 1)]).alpha(&english) - UNFIT).abs() < f32::EPSILON);
        assert!((CollectionLanguages::of(&[]).alpha(&english) - UNFIT).abs() < f32::EPSILON);
    }

    #[test]
    fn a_rare_guess_is_a_mistake_and_a_rare_word_given_is_not() {
        assert_eq!(CollectionLanguages::of(&[row("en", true, 999), row("de", true, 1)]).codes(), ["en"]);
        assert_eq!(CollectionLanguages::of(&[row("en", true, 999), row("fr", false, 1)]).codes(), ["en", "fr"]);
    }
}
