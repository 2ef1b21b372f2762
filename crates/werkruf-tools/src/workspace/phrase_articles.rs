//! What a sentence asks of the articles: the topic after "zu", "about", "sobre", or tags.

use std::ops::Range;

use super::phrase::{MOST_WORDS, Phrase};
use super::vocabulary as known;

/// Articles that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedArticles {
    pub(super) search: Option<String>,
    pub(super) tags: Vec<String>,
}

impl Phrase<'_> {
    /// Articles, if that is what it is about.
    pub(super) fn articles(&self) -> Option<WantedArticles> {
        let at = self.article_noun()?;
        let numbered = self.tokens.get(at + 1).is_some_and(|next| next.number().is_some());
        let asked = at == 0 || self.any(&known::ASKING) || self.any(&known::POSSESSIVE) || self.tokens.len() <= 2;
        if numbered || !asked || self.any(&known::DEEDS) || self.tokens.len() > MOST_WORDS || self.defines() {
            return None;
        }
        let tags = self.tags();
        let search = if tags.is_empty() { self.search(at) } else { None };
        Some(WantedArticles { search, tags })
    }

    fn article_noun(&self) -> Option<usize> {
        let noun = self.tokens.iter().enumerate().position(|(at, _)| self.is_noun(at, known::ARTICLES));
        noun.or_else(|| {
            let at = self.tokens.iter().position(|token| token.folded == "cerebro")?;
            let before = if at > 0 { self.word(at - 1) } else { "" };
            // The Spanish brain has an article of its own.
            (!["el", "un", "mi", "su", "tu", "del", "al", "o", "meu"].contains(&before)).then_some(at)
        })
    }

    /// After the noun and a word such as "about", up to a clause that speaks of something else.
    pub(super) fn topic_range(&self) -> Range<usize> {
        let Some(noun) = self.article_noun() else { return 0..0 };
        let Some(about) = (noun + 1..self.tokens.len()).find(|at| known::ABOUT.contains(self.word(*at))) else { return 0..0 };
        let own = self.clauses.iter().position(|clause| clause.contains(&about)).unwrap_or(0);
        let mut end = self.clauses.get(own).map_or(self.tokens.len(), |clause| clause.end);
        for clause in self.clauses.iter().skip(own + 1) {
            let other = clause.clone().any(|at| {
                [known::REQUESTS, known::TASKS, known::WORKTIME].iter().any(|nouns| self.is_noun(at, nouns))
                    || known::WORKED.contains(self.word(at))
                    || ["todos", "todo"].contains(&self.word(at))
                    || known::FIRST_PERSON.contains(self.word(at))
            });
            if other {
                break;
            }
            end = clause.end;
        }
        about + 1..end
    }

    /// The topic without what carries none; else what stands beside the noun.
    fn search(&self, noun: usize) -> Option<String> {
        let spoken = |range: Range<usize>, keep: &dyn Fn(usize) -> bool| -> Vec<&str> {
            range.filter(|at| keep(*at)).map(|at| self.tokens[at].raw).collect()
        };
        let topical = |at: usize| {
            let word = self.word(at);
            !known::STOP.contains(word) && !known::AND.contains(word) && word != "cerebro" && !known::ASKING.contains(word)
        };
        let mut words = spoken(self.topic.clone(), &topical);
        if words.is_empty() && self.topic.is_empty() {
            let clause = self.clauses.iter().find(|clause| clause.contains(&noun)).cloned().unwrap_or(0..self.tokens.len());
            let strange = |at: usize| !self.is_known(at);
            words = spoken(noun + 1..clause.end, &strange);
            if words.is_empty() {
                words = spoken(clause.start..noun, &strange);
            }
        }
        (!words.is_empty()).then(|| words.join(" ").to_lowercase())
    }

    fn tags(&self) -> Vec<String> {
        let hashed = self.tokens.iter().filter(|token| token.start > 0 && self.text.as_bytes()[token.start - 1] == b'#');
        let mut tags: Vec<String> = hashed.map(|token| token.raw.to_lowercase()).collect();
        // "Guten Tag" is no tag: the word counts only after the article it belongs to.
        let noun = self.article_noun().unwrap_or(usize::MAX);
        let sign = self.tokens.iter().enumerate().position(|(at, token)| at > noun && known::TAGS.contains(token.folded.as_str()));
        if let Some(sign) = sign {
            let named = self.tokens[sign + 1..].iter().filter(|token| !known::STOP.contains(token.folded.as_str()));
            tags.extend(named.map(|token| token.raw.to_lowercase()));
        }
        tags.dedup();
        tags
    }
}
