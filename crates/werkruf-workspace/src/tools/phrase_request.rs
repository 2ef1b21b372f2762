//! Detects sentences that ask for a new request, and extracts the title.
//!
//! The sentence must contain a verb such as "create", the noun, and a title after a colon or in quotes. Creating an
//! unwanted request is worse than not understanding a sentence.

use super::phrase::Phrase;

const MAKING: [&str; 22] = [
    "erstelle",
    "erstellen",
    "erstell",
    "lege",
    "leg",
    "anlegen",
    "neue",
    "stelle",
    "eroffne",
    "create",
    "make",
    "new",
    "open",
    "file",
    "submit",
    "add",
    "crea",
    "crear",
    "creame",
    "nueva",
    "abre",
    "anade",
];
const NOUNS: [&str; 3] = ["anfrage", "request", "solicitud"];
const QUOTES: [(char, char); 6] = [('"', '"'), ('“', '”'), ('„', '“'), ('«', '»'), ('»', '«'), ('‘', '’')];

impl Phrase<'_> {
    /// The title of the request to create.
    pub(super) fn new_request(&self) -> Option<String> {
        let noun = self.tokens.iter().position(|token| NOUNS.contains(&token.folded.as_str()))?;
        let made = self.tokens[..noun].iter().any(|token| MAKING.contains(&token.folded.as_str()));
        // The noun must be near the start: a long text that only mentions a request does not count.
        if !made || noun > 6 {
            return None;
        }
        let after = self.text.get(self.tokens[noun].end..)?;
        let title = quoted(after).or_else(|| after.split_once(':').map(|(_, title)| title))?;
        let title = title.trim().trim_end_matches(['.', '!']).trim();
        (!title.is_empty() && title.chars().count() <= 200).then(|| title.to_owned())
    }
}

fn quoted(text: &str) -> Option<&str> {
    QUOTES.iter().find_map(|(open, close)| {
        let (_, inside) = text.split_once(*open)?;
        inside.split_once(*close).map(|(title, _)| title)
    })
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::Phrase;

    fn title(text: &str) -> Option<String> {
        Phrase::read(text, "de-DE", date(2026, 11, 15)).new_request()
    }

    #[test]
    fn a_clear_instruction_has_a_title() {
        for (text, expected) in [
            ("Erstelle eine Anfrage: Drucker im Flur ist kaputt.", "Drucker im Flur ist kaputt"),
            ("Bitte lege eine neue Anfrage „Neuer Stuhl“ an", "Neuer Stuhl"),
            ("Create a request: order 3 chairs", "order 3 chairs"),
            ("Please open a new request \"Replace the lamp\" for me", "Replace the lamp"),
            ("Crea una solicitud: revisar la impresora", "revisar la impresora"),
        ] {
            assert_eq!(title(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_unclear_sentence_has_no_title() {
        for text in [
            "Welche Anfragen sind offen?",
            "Create a request",
            "Erstelle eine Anfrage",
            "My request: where is it?",
            "Can you tell me how people here usually create a request: by mail?",
            "Erstelle eine Aufgabe: Drucker",
        ] {
            assert_eq!(title(text), None, "{text}");
        }
    }
}
