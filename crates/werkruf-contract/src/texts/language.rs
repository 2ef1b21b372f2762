//! The languages in which the server answers users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::string_enum;

string_enum! {
    /// A language that has a text file.
    Language { German = "de", English = "en", Spanish = "es" }
}

/// Common words that identify a language, in lower case without accents.
const GERMAN: &[&str] = &[
    "ich",
    "welche",
    "welcher",
    "welches",
    "wie",
    "wer",
    "bin",
    "habe",
    "hab",
    "mir",
    "mich",
    "meine",
    "meinen",
    "meiner",
    "heute",
    "gestern",
    "woche",
    "offen",
    "offene",
    "offenen",
    "aufgaben",
    "anfragen",
    "anfrage",
    "arbeitszeit",
    "gearbeitet",
    "lange",
    "zeig",
    "zeige",
    "gibt",
    "und",
    "oder",
    "fur",
    "von",
    "am",
    "marz",
    "nach",
    "zu",
    "zum",
    "zur",
    "uber",
    "der",
    "die",
    "das",
    "den",
    "dem",
    "ist",
    "sind",
    "was",
    "bitte",
    "alle",
    "artikel",
    "notfall",
    "notfalle",
    "notfallen",
    "stunden",
    "suche",
    "hallo",
    "danke",
    "nicht",
    "kannst",
    "du",
    "mit",
    "fallig",
    "erledigt",
    "es",
    "noch",
    "viel",
    "viele",
    "wieviel",
    "habt",
    "hat",
    "liegt",
    "liegen",
    "an",
    "steht",
    "stehen",
];
const ENGLISH: &[&str] = &[
    "i",
    "what",
    "which",
    "how",
    "who",
    "am",
    "have",
    "my",
    "me",
    "today",
    "yesterday",
    "week",
    "open",
    "tasks",
    "task",
    "worked",
    "work",
    "long",
    "show",
    "list",
    "are",
    "there",
    "and",
    "or",
    "for",
    "of",
    "to",
    "about",
    "the",
    "is",
    "was",
    "please",
    "all",
    "articles",
    "article",
    "emergency",
    "emergencies",
    "hours",
    "search",
    "hello",
    "thanks",
    "not",
    "can",
    "you",
    "with",
    "due",
    "done",
    "do",
    "did",
    "any",
    "this",
    "much",
    "many",
    "find",
    "give",
    "tell",
    "in",
    "on",
    "from",
    "hi",
    "a",
    "an",
    "it",
];
const SPANISH: &[&str] = &[
    "yo",
    "que",
    "cual",
    "cuales",
    "como",
    "quien",
    "soy",
    "tengo",
    "mi",
    "mis",
    "hoy",
    "ayer",
    "semana",
    "abierta",
    "abiertas",
    "abierto",
    "abiertos",
    "tareas",
    "tarea",
    "solicitudes",
    "solicitud",
    "trabajado",
    "trabaje",
    "tiempo",
    "cuanto",
    "cuantas",
    "cuantos",
    "muestra",
    "muestrame",
    "hay",
    "y",
    "o",
    "para",
    "de",
    "del",
    "a",
    "sobre",
    "el",
    "la",
    "los",
    "las",
    "es",
    "son",
    "por",
    "favor",
    "todas",
    "articulos",
    "articulo",
    "emergencia",
    "emergencias",
    "horas",
    "busca",
    "buscar",
    "hola",
    "gracias",
    "no",
    "puedes",
    "con",
    "esta",
    "este",
    "pendientes",
    "pendiente",
    "he",
    "ensename",
    "dame",
    "lista",
    "vencen",
    "vence",
    "en",
    "llevo",
];

/// The longest locale tag. BCP 47 says how long one may be that everybody must accept.
const LOCALE_BYTES: usize = 35;

/// Whether the text has the form of a BCP 47 language tag such as `de-DE`. Locales stand in prompts, so nothing else may pass for one.
pub fn is_locale(text: &str) -> bool {
    let mut parts = text.split('-');
    let language = parts.next().unwrap_or_default();
    text.len() <= LOCALE_BYTES
        && (2..=8).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_alphabetic())
        && parts.all(|part| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

impl Language {
    /// The language of a locale tag; English if the language is not supported.
    pub fn of(locale: &str) -> Self {
        let primary = locale.split(['-', '_']).next().unwrap_or_default();
        Self::parse(&primary.to_ascii_lowercase()).unwrap_or(Self::English)
    }

    /// The locale tag to use when only the language is known.
    pub const fn locale(self) -> &'static str {
        match self {
            Self::German => "de-DE",
            Self::English => "en-US",
            Self::Spanish => "es-ES",
        }
    }

    /// The language of a text; `None` if no language has the most known words.
    pub fn guess(text: &str) -> Option<Self> {
        let folded = fold(text);
        let words: Vec<&str> = folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let count = |known: &[&str]| words.iter().filter(|word| known.contains(word)).count();
        let mut counts = [(count(GERMAN), Self::German), (count(ENGLISH), Self::English), (count(SPANISH), Self::Spanish)];
        counts.sort_by_key(|count| std::cmp::Reverse(count.0));
        let [first, second, _] = counts;
        (first.0 > second.0).then_some(first.1)
    }
}

/// The text in lower case without accents, for comparing words; not for display.
pub fn fold(text: &str) -> String {
    text.to_lowercase()
        .chars()
        .flat_map(|c| {
            let plain = match c {
                'ä' | 'á' | 'à' | 'â' => 'a',
                'ö' | 'ó' | 'ò' | 'ô' => 'o',
                'ü' | 'ú' | 'ù' | 'û' => 'u',
                'é' | 'è' | 'ê' => 'e',
                'í' | 'ì' | 'î' => 'i',
                'ñ' => 'n',
                'ç' => 'c',
                other => other,
            };
            (plain == 'ß').then_some(['s', 's']).into_iter().flatten().chain((plain != 'ß').then_some(plain))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Language, fold};

    #[test]
    fn common_words_identify_the_language() {
        assert_eq!(Language::guess("Welche Anfragen habe ich offen?"), Some(Language::German));
        assert_eq!(Language::guess("what articles are there about emergencies"), Some(Language::English));
        assert_eq!(Language::guess("¿Cuánto he trabajado hoy?"), Some(Language::Spanish));
        assert_eq!(Language::guess("requests"), None);
        assert_eq!(Language::guess("am 15. März 2027"), Some(Language::German));
        assert_eq!(Language::guess("am 15.4."), None, "German as well as English");
        assert_eq!(Language::of("de-AT"), Language::German);
        assert_eq!(Language::of("fr"), Language::English);
        assert_eq!(fold("Übergröße ¿QUÉ?"), "ubergrosse ¿que?");
    }
}
