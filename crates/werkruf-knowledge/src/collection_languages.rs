//! The languages of a collection, and the weight of its vectors that depends on them.

use super::language::Language;
use super::rows::LanguageCount;

/// The weight of the vectors if their model supports all languages of the collection, and if it does not.
const FIT: f32 = 0.6;
const UNFIT: f32 = 0.4;
/// A guessed language counts only if at least one document in this many has it, because a short text is easily misclassified.
const RARE: i64 = 50;

/// The languages of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionLanguages {
    codes: Vec<String>,
    analysed: Vec<Language>,
    main: Option<Language>,
    /// Whether some documents are in a language without a code.
    has_others: bool,
}

impl CollectionLanguages {
    /// Computes the languages from the documents per language.
    pub fn of(rows: &[LanguageCount]) -> Self {
        let all: i64 = rows.iter().filter(|row| row.code.is_some()).map(|row| row.documents).sum();
        let counts = |row: &&LanguageCount| row.documents > 0 && (!row.guessed || row.documents * RARE >= all);
        let mut codes: Vec<String> = rows.iter().filter(counts).filter_map(|row| row.code.clone()).collect();
        codes.sort_unstable();
        codes.dedup();
        let analysed: Vec<Language> =
            Language::ALL.into_iter().filter(|one| codes.iter().any(|code| Language::parse(code) == Some(*one))).collect();
        let count = |one: Language| -> i64 {
            rows.iter().filter(|row| row.code.as_deref().and_then(Language::parse) == Some(one)).map(|row| row.documents).sum()
        };
        // Documents that do not show their language, such as tables and short notes, are left out: every collection has some, and they are
        // usually in its language.
        let others: i64 = rows.iter().filter(|row| row.code.is_none() && row.guessed).map(|row| row.documents).sum();
        let has_others = others > 0 && others * RARE >= all + others;
        let main = analysed.iter().copied().max_by_key(|one| (count(*one), std::cmp::Reverse(*one)));
        Self { codes, analysed, main, has_others }
    }

    /// Whether no language is known.
    pub(super) const fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// The language codes as given or guessed.
    pub fn codes(&self) -> &[String] {
        &self.codes
    }

    /// The languages with an analysis of their own.
    pub fn languages(&self) -> &[Language] {
        &self.analysed
    }

    /// The language in which a chunk is analysed: its own, or the most frequent one of the collection.
    pub(super) fn of_chunk(&self, code: Option<&str>) -> Language {
        let own = code.and_then(Language::parse).filter(|own| self.analysed.contains(own));
        own.or(self.main).unwrap_or(Language::En)
    }

    /// The weight of the vectors for a model that supports these languages.
    pub fn alpha(&self, model: &[String]) -> f32 {
        let known = |code: &String| model.iter().any(|other| base(other) == base(code));
        if !self.codes.is_empty() && !self.has_others && self.codes.iter().all(known) { FIT } else { UNFIT }
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
    fn the_vector_weight_depends_on_the_languages() {
        let english = ["en".to_owned()];
        assert!((CollectionLanguages::of(&[row("en", true, 9)]).alpha(&english) - FIT).abs() < f32::EPSILON);
        assert!((CollectionLanguages::of(&[row("en", true, 9), row("de", true, 1)]).alpha(&english) - UNFIT).abs() < f32::EPSILON);
        assert!((CollectionLanguages::of(&[]).alpha(&english) - UNFIT).abs() < f32::EPSILON);
    }

    #[test]
    fn documents_in_a_language_without_a_code_count_and_documents_without_signs_do_not() {
        let without_code = |guessed: bool, documents: i64| LanguageCount { code: None, guessed, documents };
        let alpha = |rows: &[LanguageCount]| CollectionLanguages::of(rows).alpha(&["en".to_owned()]);
        assert!((alpha(&[without_code(true, 90), row("en", true, 10)]) - UNFIT).abs() < f32::EPSILON, "mostly French");
        assert!((alpha(&[row("en", true, 97), without_code(true, 3)]) - UNFIT).abs() < f32::EPSILON, "more than one in fifty");
        assert!((alpha(&[row("en", true, 99), without_code(true, 1)]) - FIT).abs() < f32::EPSILON, "a wrong guess");
        assert!((alpha(&[row("en", true, 9), without_code(false, 1)]) - FIT).abs() < f32::EPSILON, "a short note");
        assert!((alpha(&[row("en", true, 9), without_code(true, 0)]) - FIT).abs() < f32::EPSILON, "deleted");
    }

    #[test]
    fn a_rare_guessed_language_is_ignored_and_a_given_one_is_not() {
        assert_eq!(CollectionLanguages::of(&[row("en", true, 999), row("de", true, 1)]).codes(), ["en"]);
        assert_eq!(CollectionLanguages::of(&[row("en", true, 999), row("fr", false, 1)]).codes(), ["en", "fr"]);
    }
}
