//! Keywords: whole messages that are answered by one tool without a model.
//!
//! Each language has built-in words. `[whatsapp.keywords.<language>]` adds words, gives a word another tool, or takes words away.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use werkruf_contract::Language;

/// A longer message is no keyword.
const MAX_CHARS: usize = 100;

/// `(language, word, tool)`.
const BUILT_IN: [(Language, &str, &str); 15] = [
    (Language::German, "requests", "get_requests"),
    (Language::German, "anfragen", "get_requests"),
    (Language::German, "todos", "get_todos"),
    (Language::German, "aufgaben", "get_todos"),
    (Language::German, "wer bin ich", "get_user_info"),
    (Language::German, "arbeitszeit", "get_worktime"),
    (Language::English, "requests", "get_requests"),
    (Language::English, "todos", "get_todos"),
    (Language::English, "tasks", "get_todos"),
    (Language::English, "who am i", "get_user_info"),
    (Language::English, "worktime", "get_worktime"),
    (Language::Spanish, "solicitudes", "get_requests"),
    (Language::Spanish, "tareas", "get_todos"),
    (Language::Spanish, "quién soy", "get_user_info"),
    (Language::Spanish, "horas", "get_worktime"),
];

/// One entry of `[whatsapp.keywords.<language>]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum KeywordEntry {
    /// `word = "tool"`; an empty text takes the word away.
    Tool(String),
    /// `tool = ["word", …]`: these are all words of the tool in this language.
    Words(Vec<String>),
    /// `word = { tool = "…", arguments = {…} }`.
    Call(KeywordCall),
}

/// A tool with arguments of its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeywordCall {
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) arguments: Map<String, Value>,
}

/// `[whatsapp.keywords.<language>]`, by word or tool.
pub(crate) type KeywordSection = BTreeMap<String, KeywordEntry>;

/// A word of one language.
#[derive(Debug, Clone, PartialEq)]
struct Keyword {
    language: Language,
    /// As [`normalized`] returns it.
    word: String,
    tool: String,
    arguments: Value,
}

/// All keywords.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Keywords(Vec<Keyword>);

/// The call that a message stands for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeywordMatch {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// The language of the word, if only one language has it.
    pub(crate) language: Option<Language>,
}

impl Default for Keywords {
    fn default() -> Self {
        Self(BUILT_IN.iter().map(|(language, word, tool)| Keyword::new(*language, word, tool, None)).collect())
    }
}

impl Keyword {
    fn new(language: Language, word: &str, tool: &str, arguments: Option<&Map<String, Value>>) -> Self {
        let arguments = arguments.map_or_else(|| usual_arguments(tool), |arguments| Value::Object(arguments.clone()));
        Self { language, word: normalized(word), tool: tool.to_owned(), arguments }
    }
}

/// What a keyword asks a tool for: the person's own open rows, and the working time of today.
fn usual_arguments(tool: &str) -> Value {
    match tool {
        "get_requests" | "get_todos" => json!({"status": "open"}),
        "get_worktime" => json!({"date": "today"}),
        _ => json!({}),
    }
}

impl Keywords {
    /// Applies a section of the configuration.
    pub(crate) fn apply(&mut self, language: Language, section: &KeywordSection) {
        for (name, entry) in section {
            match entry {
                KeywordEntry::Words(words) => {
                    self.0.retain(|keyword| keyword.language != language || keyword.tool != *name);
                    words.iter().for_each(|word| self.put(language, word, name, None));
                }
                KeywordEntry::Tool(tool) => self.put(language, name, tool, None),
                KeywordEntry::Call(call) => self.put(language, name, &call.tool, Some(&call.arguments)),
            }
        }
    }

    /// Gives a word a tool; an empty one takes the word away.
    fn put(&mut self, language: Language, word: &str, tool: &str, arguments: Option<&Map<String, Value>>) {
        let keyword = Keyword::new(language, word, tool, arguments);
        self.0.retain(|other| other.language != language || other.word != keyword.word);
        if !tool.is_empty() && !keyword.word.is_empty() {
            self.0.push(keyword);
        }
    }

    /// The call for this message, if the whole message is a keyword. Where two languages have the word, the person's own decides.
    pub(crate) fn find(&self, message: &str, own: Language) -> Option<KeywordMatch> {
        if message.chars().nth(MAX_CHARS).is_some() {
            return None;
        }
        let message = normalized(message);
        let found: Vec<&Keyword> = self.0.iter().filter(|keyword| keyword.word == message).collect();
        let keyword = found.iter().find(|keyword| keyword.language == own).or_else(|| found.first())?;
        let language = (found.len() == 1).then_some(keyword.language);
        Some(KeywordMatch { tool: keyword.tool.clone(), arguments: keyword.arguments.clone(), language })
    }
}

/// The tools that a section names, each with its place in the section.
pub(crate) fn named_tools(section: &KeywordSection) -> impl Iterator<Item = (&str, &str)> {
    section.iter().filter_map(|(name, entry)| match entry {
        KeywordEntry::Tool(tool) => (!tool.is_empty()).then_some((name.as_str(), tool.as_str())),
        KeywordEntry::Words(_) => Some((name.as_str(), name.as_str())),
        KeywordEntry::Call(call) => Some((name.as_str(), call.tool.as_str())),
    })
}

/// A message for comparing: without case, accents, repeated spaces, and punctuation at its ends.
fn normalized(text: &str) -> String {
    let plain: String = text.to_lowercase().nfkd().filter(|sign| !is_combining_mark(*sign)).collect::<String>().replace('ß', "ss");
    let inner = plain.trim_matches(|sign: char| !sign.is_alphanumeric());
    inner.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keywords: &Keywords, message: &str, own: Language) -> Option<(String, Value, Option<Language>)> {
        keywords.find(message, own).map(|found| (found.tool, found.arguments, found.language))
    }

    fn call(tool: &str, arguments: Value, language: Option<Language>) -> Option<(String, Value, Option<Language>)> {
        Some((tool.to_owned(), arguments, language))
    }

    #[test]
    fn a_whole_message_is_compared_without_case_accents_and_outer_punctuation() {
        let keywords = Keywords::default();
        let whoami = call("get_user_info", json!({}), Some(Language::Spanish));
        for message in ["quién soy", "¿Quién soy?", "QUIEN  SOY!!", "quie\u{301}n\nsoy", "*quien soy*"] {
            assert_eq!(found(&keywords, message, Language::German), whoami, "{message}");
        }
        let open = json!({"status": "open"});
        assert_eq!(found(&keywords, "Requests", Language::Spanish), call("get_requests", open.clone(), None), "German and English");
        assert_eq!(found(&keywords, "Anfragen.", Language::English), call("get_requests", open.clone(), Some(Language::German)));
        assert_eq!(found(&keywords, "tasks", Language::German), call("get_todos", open, Some(Language::English)));
        assert_eq!(
            found(&keywords, "Arbeitszeit", Language::German),
            call("get_worktime", json!({"date": "today"}), Some(Language::German))
        );
        for message in ["", "?!", "meine anfragen", "anfragen heute", "an fragen", &"anfragen ".repeat(20)] {
            assert_eq!(keywords.find(message, Language::German), None, "{message}");
        }
    }

    #[test]
    fn the_configuration_adds_replaces_and_takes_away() {
        let section: KeywordSection = toml::from_str(
            "Tickets = 'get_requests'\nAnfragen = ''\narbeitszeit = { tool = 'get_worktime', arguments = { date = 'yesterday' } }\n\
             get_todos = ['Zu tun', 'Liste']\n",
        )
        .unwrap();
        let mut keywords = Keywords::default();
        keywords.apply(Language::German, &section);
        let tool = |message: &str| keywords.find(message, Language::German).map(|found| found.tool);
        assert_eq!(tool("tickets").as_deref(), Some("get_requests"));
        assert_eq!(tool("anfragen"), None);
        assert_eq!(keywords.find("arbeitszeit", Language::German).unwrap().arguments, json!({"date": "yesterday"}));
        assert_eq!(tool("zu tun").as_deref(), Some("get_todos"));
        assert_eq!(tool("aufgaben"), None, "the list names all words of the tool");
        let todos = keywords.find("todos", Language::German).unwrap();
        assert_eq!((todos.tool.as_str(), todos.language), ("get_todos", Some(Language::English)), "English keeps its own words");
        let named: Vec<(&str, &str)> = named_tools(&section).collect();
        assert_eq!(
            named,
            [("Tickets", "get_requests"), ("arbeitszeit", "get_worktime"), ("get_todos", "get_todos")],
            "in the order of the names"
        );
    }
}
