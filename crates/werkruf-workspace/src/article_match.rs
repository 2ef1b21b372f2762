//! Matches and ranks articles by words and tags, without regard to case and accents.

use std::cmp::Reverse;

use werkruf_contract::fold;

use crate::store::{ArticleRow, Listing};

/// The most articles that one search reads; with more, the result is marked as truncated.
pub(crate) const MOST_ARTICLES: u32 = 20_000;

/// How many words of a search are used. Users type fewer, and the limit bounds the cost of a long text from a model.
const MOST_WORDS: usize = 16;

/// Endings of plurals and cases in German, English and Spanish: "Notfällen" is searched as "Notfall".
const ENDINGS: [&str; 6] = ["ies", "en", "es", "e", "n", "s"];
/// The least number of characters that remain of a word without its ending.
const SHORTEST_STEM: usize = 5;

/// A search with its words and tags folded.
pub(crate) struct Wanted {
    words: Vec<String>,
    tags: Vec<String>,
}

impl Wanted {
    pub(crate) fn new(search: Option<&str>, tags: &[String]) -> Self {
        let folded = fold(search.unwrap_or_default());
        let mut words: Vec<String> = Vec::new();
        for word in folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).take(MOST_WORDS) {
            let word = stem(word);
            if !words.iter().any(|known| known == word) {
                words.push(word.to_owned());
            }
        }
        let tags = tags.iter().map(|tag| fold_tag(tag)).filter(|tag| !tag.is_empty()).collect();
        Self { words, tags }
    }

    /// How often the words and tags occur in the article; `None` when a word or every tag is missing.
    pub(crate) fn matches(&self, article: &ArticleRow) -> Option<usize> {
        let tags: Vec<String> = article.tags.iter().map(|tag| fold_tag(tag)).collect();
        let tagged = tags.iter().filter(|tag| self.tags.contains(tag)).count();
        if !self.tags.is_empty() && tagged == 0 {
            return None;
        }
        if self.words.is_empty() {
            return Some(tagged);
        }
        let (title, content) = (fold(&article.title), fold(&article.content));
        let mut total = tagged;
        for word in &self.words {
            let word = word.as_str();
            let in_tags: usize = tags.iter().map(|tag| tag.matches(word).count()).sum();
            let found = title.matches(word).count() + content.matches(word).count() + in_tags;
            if found == 0 {
                return None;
            }
            total += found;
        }
        Some(total)
    }
}

fn fold_tag(tag: &str) -> String {
    fold(tag.trim().trim_start_matches('#'))
}

/// The word without its ending, where the rest is long enough.
fn stem(word: &str) -> &str {
    let cut = ENDINGS.iter().filter_map(|ending| word.strip_suffix(ending)).find(|rest| rest.chars().count() >= SHORTEST_STEM);
    cut.unwrap_or(word)
}

/// The best articles so far. It never holds more than a few times the limit.
pub(crate) struct Ranking {
    limit: usize,
    best: Vec<(usize, ArticleRow)>,
    dropped: bool,
}

impl Ranking {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), best: Vec::new(), dropped: false }
    }

    pub(crate) fn add(&mut self, matches: usize, article: ArticleRow) {
        self.best.push((matches, article));
        if self.best.len() > self.limit.saturating_mul(2).saturating_add(16) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.best.sort_unstable_by_key(|(matches, article)| (Reverse(*matches), article.id));
        self.dropped |= self.best.len() > self.limit;
        self.best.truncate(self.limit);
    }

    pub(crate) fn into_listing(mut self) -> Listing<ArticleRow> {
        self.cut();
        Listing { rows: self.best.into_iter().map(|(_, article)| article).collect(), truncated: self.dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ranking, Wanted};
    use crate::store::ArticleRow;

    fn article(id: i64, title: &str, tags: &[&str]) -> ArticleRow {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        ArticleRow { id, title: title.to_owned(), content: "Qué hacer: erste Hilfe, Größe XL".to_owned(), tags }
    }

    #[test]
    fn every_word_must_occur_and_case_accents_and_endings_do_not_matter() {
        let found = |search: &str| Wanted::new(Some(search), &[]).matches(&article(1, "Notfall im Büro", &["Emergency", "#Emergencia"]));
        for search in ["NOTFALL", "notfällen", "Notfälle buro", "que hilfe", "GRÖSSE", "emergencies", "emergencias", "", "¿qué?"] {
            assert!(found(search).is_some(), "{search}");
        }
        for search in ["notfall urlaub", "wifi", "bürokratie"] {
            assert_eq!(found(search), None, "{search}");
        }
        assert_eq!(found("emergenci"), Some(1));
    }

    #[test]
    fn one_tag_is_enough_and_words_count_beside_it() {
        let tagged = article(1, "Notfall", &["notfall", "büro"]);
        let find = |search: Option<&str>, tags: &[&str]| {
            Wanted::new(search, &tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>()).matches(&tagged)
        };
        assert_eq!(find(None, &["Buro", "wifi"]), Some(1));
        assert_eq!(find(None, &["wifi"]), None);
        assert_eq!(find(Some("notfall"), &["notfall"]), Some(3));
        assert_eq!(find(Some("urlaub"), &["notfall"]), None);
    }

    #[test]
    fn the_best_come_first_and_memory_is_bounded() {
        let mut ranking = Ranking::new(2);
        for id in 1..=100 {
            ranking.add(usize::from(id % 50 == 0), article(id, "x", &[]));
            assert!(ranking.best.len() <= 20);
        }
        let found = ranking.into_listing();
        assert_eq!(found.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [50, 100]);
        assert!(found.truncated);
    }
}
