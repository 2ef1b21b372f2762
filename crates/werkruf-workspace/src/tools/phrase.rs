//! Finds out from the words of a sentence which workspace rows the sentence asks for.
//!
//! The rules are deterministic and cautious. Unless a sentence clearly asks for rows of the caller, or of a user whom it
//! names by id, the result is `None`. Showing the caller's rows as the answer to a different question is worse than
//! replying that the sentence was not understood.

use std::ops::Range;

use jiff::civil::Date;
use werkruf_contract::Language;

use super::days::{Day, Days};
use super::phrase_status::{PhraseStatus, status_in, status_of};
use super::phrase_time::{DateRules, Direction, is_time, time_in};
use super::token::{Token, clauses, is_ending, is_typo, tokens};
use super::vocabulary;
use super::vocabulary::List;

/// A text with more words is not treated as a question to these tools.
pub(super) const MAX_WORDS: usize = 60;

/// A query for requests or tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedWork {
    pub(super) status: Option<PhraseStatus>,
    pub(super) due: Option<Day>,
    pub(super) person: Option<i64>,
}

/// A query for working time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedTime {
    pub(super) day: Option<Day>,
    pub(super) span: Option<Days>,
    pub(super) person: Option<i64>,
}

/// A parsed sentence.
pub(super) struct Phrase<'a> {
    pub(super) text: &'a str,
    pub(super) tokens: Vec<Token<'a>>,
    /// Token ranges of the clauses; clauses are joined by "and".
    pub(super) clauses: Vec<Range<usize>>,
    /// Token range of an article's topic. The words in it are ignored by all other rules.
    pub(super) topic: Range<usize>,
    language: Language,
    american: bool,
    today: Date,
}

impl<'a> Phrase<'a> {
    pub(super) fn read(text: &'a str, locale: &str, today: Date) -> Self {
        let tokens = tokens(text);
        let language = Language::guess(text).unwrap_or_else(|| Language::of(locale));
        let american = language == Language::English && (locale.len() < 5 || locale.to_ascii_lowercase().ends_with("us"));
        let clauses = clauses(&tokens);
        let mut phrase = Self { text, tokens, clauses, topic: 0..0, language, american, today };
        phrase.topic = phrase.topic_range();
        phrase
    }

    /// The query for requests, if the sentence is one.
    pub(super) fn requests(&self) -> Option<WantedWork> {
        let at = self.noun(vocabulary::REQUESTS)?;
        // In "I request" and "to request" the word is a verb.
        if at > 0 && ["i", "to", "we", "ich"].contains(&self.word(at - 1)) && self.word(at) == "request" {
            return None;
        }
        self.work(at)
    }

    /// The query for tasks, if the sentence is one.
    pub(super) fn todos(&self) -> Option<WantedWork> {
        if let Some(at) = self.noun(vocabulary::TASKS).or_else(|| self.todo_noun()) {
            return self.work(at);
        }
        let duty = self.duty()?;
        self.work(duty)
    }

    /// The query for working time, if the sentence is one.
    pub(super) fn worktime(&self) -> Option<WantedTime> {
        let at = self.worktime_noun().or_else(|| self.worked())?;
        if self.is_out_of_scope() {
            return None;
        }
        let date_rules = self.date_rules(Direction::Past);
        let (day, span) = self
            .in_clause_or_all(at, |tokens| {
                let (day, span) = time_in(tokens, self.text, date_rules);
                (day.is_some() || span.is_some()).then_some((day, span))
            })
            .unwrap_or_default();
        let week = day.filter(|day| !day.is_single()).map(|day| day.days(self.today));
        Some(WantedTime { day, span: span.or(week), person: self.person() })
    }

    fn work(&self, at: usize) -> Option<WantedWork> {
        if self.is_out_of_scope() {
            return None;
        }
        let date_rules = self.date_rules(Direction::Future);
        let due = self.in_clause_or_all(at, |tokens| time_in(tokens, self.text, date_rules).0);
        let status = self.in_clause_or_all(at, status_in).flatten();
        let person = self.person();
        let unknown = self.unknown().count();
        let supported =
            self.any(&vocabulary::ASKING) || self.any(&vocabulary::POSSESSIVE) || status.is_some() || due.is_some() || person.is_some();
        let bare = unknown == 0 && (at == 0 || self.tokens.len() <= 2);
        // "That is not my task" mentions one item and does not ask for a list.
        let first = self.word(0);
        let one = ["anfrage", "request", "solicitud", "aufgabe", "task", "tarea"].contains(&self.word(at));
        if one && !(vocabulary::ASKING.contains(first) || vocabulary::POSSESSIVE.contains(first) || status.is_some() || at == 0) {
            return None;
        }
        let clear = unknown <= 2 && unknown * 2 <= self.tokens.len();
        ((supported && clear) || bare).then_some(WantedWork { status, due, person })
    }

    /// Whether the sentence is not a question about rows of the caller or of a user named by id.
    fn is_out_of_scope(&self) -> bool {
        let third = self.any(&vocabulary::THIRD_PERSON) && !self.any(&vocabulary::FIRST_PERSON);
        self.tokens.len() > MAX_WORDS
            || self.any(&vocabulary::ACTIONS)
            || self.any(&vocabulary::OTHER_TOPICS)
            || self.any(&vocabulary::OTHER_OWNERS)
            || self.asks_for_definition()
            || self.person().is_none() && (third || self.names_another_person())
    }

    /// "What is a request?"
    pub(super) fn asks_for_definition(&self) -> bool {
        let forms: [&[&str]; 7] = [
            &["was", "ist", "ein"],
            &["was", "ist", "eine"],
            &["what", "is", "a"],
            &["what", "is", "an"],
            &["que", "es", "un"],
            &["que", "es", "una"],
            &["was", "bedeutet"],
        ];
        forms.iter().any(|form| self.sequence(form))
    }

    /// "… of Clara", "Clara's …", "Claras …": another person who is not named by id.
    fn names_another_person(&self) -> bool {
        let is_unknown = |at: usize| at < self.tokens.len() && !self.topic.contains(&at) && !self.is_known(at);
        self.tokens.iter().enumerate().any(|(at, token)| {
            let word = token.folded.as_str();
            let after = if vocabulary::DETERMINERS.contains(self.word(at + 1)) { at + 2 } else { at + 1 };
            let of = vocabulary::OF_WORDS.contains(word) && is_unknown(after);
            let apostrophe = word == "s" && at > 0 && is_unknown(at - 1);
            let noun_next =
                self.is_noun(at + 1, vocabulary::REQUESTS) || self.is_noun(at + 1, vocabulary::TASKS) || self.word(at + 1) == "todos";
            let genitive = is_unknown(at) && self.language == Language::German && word.ends_with('s') && noun_next;
            let first_of_two = at == 0 && self.tokens.len() <= 2 && is_unknown(0) && noun_next;
            of || apostrophe || genitive || first_of_two
        })
    }

    /// The id of a user, as in "user 4".
    pub(super) fn person(&self) -> Option<i64> {
        self.tokens.iter().enumerate().find_map(|(at, token)| {
            let word = token.folded.as_str();
            if let Some(digits) = word.strip_prefix("user").filter(|digits| !digits.is_empty()) {
                return digits.parse().ok();
            }
            if !vocabulary::PERSON_NOUNS.contains(word) {
                return None;
            }
            let next = if vocabulary::NUMBER_LABELS.contains(self.word(at + 1)) { at + 2 } else { at + 1 };
            self.tokens.get(next)?.number()
        })
    }

    fn worktime_noun(&self) -> Option<usize> {
        let pairs = vocabulary::WORKTIME_PAIRS.iter().find_map(|pair| self.find(pair));
        let triples = || vocabulary::WORKTIME_TRIPLES.iter().find_map(|triple| self.find(triple));
        let at = self.noun(vocabulary::WORKTIME).or(pairs).or_else(triples).filter(|at| !self.topic.contains(at));
        if let Some(at) = at {
            let asked = self.any(&vocabulary::ASKING)
                || self.any(&vocabulary::POSSESSIVE)
                || at == 0
                || self.tokens.iter().any(|token| is_time(&token.folded));
            return (asked && self.unknown().count() <= 2).then_some(at);
        }
        // "My hours this week", "horas": only if the sentence contains no unknown word.
        let at = self.tokens.iter().position(|token| vocabulary::HOURS.contains(token.folded.as_str()))?;
        let counted = at > 0 && self.tokens[at - 1].number().is_some();
        let timed = self.tokens.iter().any(|token| is_time(&token.folded));
        let bare = self.any(&vocabulary::POSSESSIVE) || self.tokens.len() == 1 || (at == 0 && timed);
        (!counted && bare && self.unknown().count() == 0).then_some(at)
    }

    /// "How long have I worked", "am I clocked in".
    fn worked(&self) -> Option<usize> {
        let word_at = |list: &List| self.tokens.iter().position(|token| list.contains(token.folded.as_str()));
        let spanish_he = self.language == Language::Spanish && (self.has("he") || self.has("hemos"));
        let has_subject = self.any(&vocabulary::FIRST_PERSON) || spanish_he || self.person().is_some();
        if !has_subject || self.unknown().count() > 1 {
            return None;
        }
        let quantity = vocabulary::HOW_MUCH.iter().any(|pair| self.sequence(pair)) || self.any(&vocabulary::HOW_MUCH_WORDS);
        let first = self.word(0);
        let question = ["habe", "hab", "have", "did", "he", "hat", "am", "bin", "estoy"].contains(&first) || self.text.contains('?');
        let timed = self.tokens.iter().any(|token| is_time(&token.folded));
        let verb = word_at(&vocabulary::WORKED).filter(|_| quantity || (question && timed && !self.has("work")));
        let hours = word_at(&vocabulary::HOURS).filter(|_| quantity && timed);
        let clocked = word_at(&vocabulary::CLOCKED).filter(|_| question || quantity || timed);
        // "When did I start working today?"
        let when = ["wann", "when", "cuando"].iter().any(|word| self.has(word))
            || self.sequence(&["what", "time"])
            || self.sequence(&["que", "hora"]);
        let started = word_at(&vocabulary::WORK_START).filter(|_| when);
        verb.or(hours).or(clocked).or(started).filter(|at| !self.topic.contains(at))
    }

    /// The position of `todo` where it means a task and not "all".
    fn todo_noun(&self) -> Option<usize> {
        self.tokens.iter().enumerate().position(|(at, token)| {
            let word = token.folded.as_str();
            let (before, after) = (if at > 0 { self.word(at - 1) } else { "" }, self.word(at + 1));
            let all = vocabulary::TODO_ALL.contains(after) || vocabulary::OF_WORDS.contains(before) && self.language == Language::Spanish;
            let spelled_apart = word == "to" && ["dos", "do"].contains(&after) && {
                let hyphen = self.text.get(token.end..token.end + 1) == Some("-");
                hyphen || after == "dos"
            };
            let meant = match word {
                "todos" => {
                    self.language != Language::Spanish
                        || self.tokens.len() == 1
                        || ["mis", "my", "los", "que"].contains(&before) && after != "los"
                }
                "todo" => self.language != Language::Spanish && self.tokens.len() > 1 || before == "mi" || self.tokens.len() == 1,
                _ => spelled_apart,
            };
            meant && !all && !self.topic.contains(&at)
        })
    }

    /// "What do I have to do today", "was steht heute an", "mis pendientes".
    fn duty(&self) -> Option<usize> {
        let timed = self.tokens.iter().any(|token| is_time(&token.folded));
        let asked = self.any(&vocabulary::ASKING) || self.has("anything") || self.has("pendientes");
        if !asked || self.unknown().count() > 0 {
            return None;
        }
        let doing = vocabulary::DUTIES.iter().find_map(|pair| Some((self.find(pair)?, self.word(self.find(pair)? + 2))));
        let mine = doing.filter(|(_, next)| self.any(&vocabulary::FIRST_PERSON) && !["with", "mit", "con"].contains(next));
        let must = self.find(&["muss", "ich"]).filter(|_| timed);
        let standing = || (self.has("steht") || self.has("liegt")) && self.has("an");
        let due = || {
            (self.has("due") || self.has("fallig") || self.has("vence"))
                && (self.word(0).starts_with("wh") || ["was", "que"].contains(&self.word(0)))
        };
        mine.map(|(at, _)| at).or(must).or_else(|| (timed && (standing() || due())).then_some(0))
    }

    fn noun(&self, nouns: &[&str]) -> Option<usize> {
        (0..self.tokens.len()).find(|at| !self.topic.contains(at) && self.is_noun(*at, nouns))
    }

    pub(super) fn is_noun(&self, at: usize, nouns: &[&str]) -> bool {
        let Some(token) = self.tokens.get(at) else { return false };
        let word = token.folded.as_str();
        let begins = |noun: &&str| word.strip_prefix(*noun).is_some_and(is_ending);
        nouns.iter().any(begins) || vocabulary::TYPOS.iter().any(|(meant, noun)| nouns.contains(noun) && is_typo(word, meant))
    }

    pub(super) fn is_known(&self, at: usize) -> bool {
        let word = self.word(at);
        let lists = [
            vocabulary::STOP_WORDS,
            vocabulary::ASKING,
            vocabulary::FIRST_PERSON,
            vocabulary::POSSESSIVE,
            vocabulary::PERSON_NOUNS,
            vocabulary::NUMBER_LABELS,
            vocabulary::HOURS,
            vocabulary::WORKED,
            vocabulary::CLOCKED,
            vocabulary::TAG_WORDS,
            vocabulary::THIRD_PERSON,
            vocabulary::HOW_MUCH_WORDS,
            vocabulary::WORK_START,
            vocabulary::AND_WORDS,
        ];
        let nouns = [vocabulary::REQUESTS, vocabulary::TASKS, vocabulary::ARTICLES, vocabulary::WORKTIME];
        let facts = [
            "cerebro", "dos", "wer", "who", "quien", "filiale", "standort", "branch", "sucursal", "weisst", "sabes", "whoami", "heisse",
            "como", "llamo", "jornada", "laboral", "daten", "datos", "account", "konto", "time", "clock", "hemos", "adresse", "address",
        ];
        lists.iter().any(|list| list.contains(word))
            || nouns.iter().any(|nouns| self.is_noun(at, nouns))
            || facts.contains(&word)
            || vocabulary::PROFILE_WORDS.contains(&word)
            || is_time(word)
            || status_of(word).is_some()
            || ["arbeit", "bearbeitung", "progress", "curso", "progreso", "proceso", "kontrolle", "quality", "control", "calidad"]
                .contains(&word)
            || word.starts_with("user")
    }

    /// Positions of words that these tools do not know.
    pub(super) fn unknown(&self) -> impl Iterator<Item = usize> {
        (0..self.tokens.len()).filter(|at| !self.topic.contains(at) && !self.is_known(*at))
    }

    /// Applies `read` to the clause at this position, then to the whole sentence if the clause gives nothing.
    fn in_clause_or_all<T>(&self, at: usize, read: impl Fn(&[Token<'a>]) -> Option<T>) -> Option<T> {
        let clause = self.clauses.iter().find(|clause| clause.contains(&at)).cloned().unwrap_or(0..0);
        let own = self.tokens.get(clause).and_then(&read);
        let rest = || if self.topic.is_empty() { read(&self.tokens) } else { self.tokens.get(..self.topic.start).and_then(&read) };
        own.or_else(rest)
    }

    const fn date_rules(&self, direction: Direction) -> DateRules {
        DateRules { today: self.today, language: self.language, american: self.american, direction }
    }

    pub(super) fn word(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.folded.as_str())
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.tokens.iter().any(|token| token.folded == word)
    }

    pub(super) fn any(&self, list: &List) -> bool {
        self.tokens.iter().enumerate().any(|(at, token)| !self.topic.contains(&at) && list.contains(token.folded.as_str()))
    }

    pub(super) fn sequence(&self, words: &[&str]) -> bool {
        self.find(words).is_some()
    }

    fn find(&self, words: &[&str]) -> Option<usize> {
        self.tokens.windows(words.len()).position(|window| window.iter().zip(words).all(|(token, word)| token.folded == *word))
    }
}
