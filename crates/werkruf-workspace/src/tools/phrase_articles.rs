//! Detects sentences that ask for articles, and extracts the topic (after "zu", "about", "sobre") or the tags.

use std::ops::Range;

use super::phrase::{MAX_WORDS, Phrase};
use super::vocabulary;

/// A query for articles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedArticles {
    pub(super) search: Option<String>,
    pub(super) tags: Vec<String>,
}

impl Phrase<'_> {
    /// The query for articles, if the sentence is one.
    pub(super) fn articles(&self) -> Option<WantedArticles> {
        let at = self.article_noun()?;
        let numbered = self.tokens.get(at + 1).is_some_and(|next| next.number().is_some());
        let asked = at == 0 || self.any(&vocabulary::ASKING) || self.any(&vocabulary::POSSESSIVE) || self.tokens.len() <= 2;
        if numbered || !asked || self.any(&vocabulary::ACTIONS) || self.tokens.len() > MAX_WORDS || self.asks_for_definition() {
            return None;
        }
        let tags = self.tags();
        let search = if tags.is_empty() { self.search(at) } else { None };
        Some(WantedArticles { search, tags })
    }

    fn article_noun(&self) -> Option<usize> {
        let noun = self.tokens.iter().enumerate().position(|(at, _)| self.is_noun(at, vocabulary::ARTICLES));
        noun.or_else(|| {
            let at = self.tokens.iter().position(|token| token.folded == "cerebro")?;
            let before = if at > 0 { self.word(at - 1) } else { "" };
            // After a Spanish article such as "el", "cerebro" means the brain.
            (!["el", "un", "mi", "su", "tu", "del", "al", "o", "meu"].contains(&before)).then_some(at)
        })
    }

    /// The words after the noun and a word such as "about", up to the next clause about something else.
    pub(super) fn topic_range(&self) -> Range<usize> {
        let Some(noun) = self.article_noun() else { return 0..0 };
        let Some(about) = (noun + 1..self.tokens.len()).find(|at| vocabulary::ABOUT_WORDS.contains(self.word(*at))) else { return 0..0 };
        let own = self.clauses.iter().position(|clause| clause.contains(&about)).unwrap_or(0);
        let mut end = self.clauses.get(own).map_or(self.tokens.len(), |clause| clause.end);
        for clause in self.clauses.iter().skip(own + 1) {
            let other = clause.clone().any(|at| {
                [vocabulary::REQUESTS, vocabulary::TASKS, vocabulary::WORKTIME].iter().any(|nouns| self.is_noun(at, nouns))
                    || vocabulary::WORKED.contains(self.word(at))
                    || ["todos", "todo"].contains(&self.word(at))
                    || vocabulary::FIRST_PERSON.contains(self.word(at))
            });
            if other {
                break;
            }
            end = clause.end;
        }
        about + 1..end
    }

    /// The topic without stop words; if there is none, the unknown words after or before the noun.
    fn search(&self, noun: usize) -> Option<String> {
        let collect_words = |range: Range<usize>, keep: &dyn Fn(usize) -> bool| -> Vec<&str> {
            range.filter(|at| keep(*at)).map(|at| self.tokens[at].raw).collect()
        };
        let topical = |at: usize| {
            let word = self.word(at);
            !vocabulary::STOP_WORDS.contains(word)
                && !vocabulary::AND_WORDS.contains(word)
                && word != "cerebro"
                && !vocabulary::ASKING.contains(word)
        };
        let mut words = collect_words(self.topic.clone(), &topical);
        if words.is_empty() && self.topic.is_empty() {
            let clause = self.clauses.iter().find(|clause| clause.contains(&noun)).cloned().unwrap_or(0..self.tokens.len());
            let is_unknown = |at: usize| !self.is_known(at);
            words = collect_words(noun + 1..clause.end, &is_unknown);
            if words.is_empty() {
                words = collect_words(clause.start..noun, &is_unknown);
            }
        }
        (!words.is_empty()).then(|| words.join(" ").to_lowercase())
    }

    fn tags(&self) -> Vec<String> {
        let hashed = self.tokens.iter().filter(|token| token.start > 0 && self.text.as_bytes()[token.start - 1] == b'#');
        let mut tags: Vec<String> = hashed.map(|token| token.raw.to_lowercase()).collect();
        // "Guten Tag" is not a tag: the word counts only after the noun for an article.
        let noun = self.article_noun().unwrap_or(usize::MAX);
        let sign =
            self.tokens.iter().enumerate().position(|(at, token)| at > noun && vocabulary::TAG_WORDS.contains(token.folded.as_str()));
        if let Some(sign) = sign {
            let named = self.tokens[sign + 1..].iter().filter(|token| !vocabulary::STOP_WORDS.contains(token.folded.as_str()));
            tags.extend(named.map(|token| token.raw.to_lowercase()));
        }
        tags.dedup();
        tags
    }
}
