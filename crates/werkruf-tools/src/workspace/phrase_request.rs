//! Whether a sentence asks for a new request, and what it is to be called.
//!
//! Only what is plainly marked counts: a word for making, the noun, and a title after a colon or in quotes. A request
//! that nobody wanted is worse than a sentence that was not understood.

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
    /// The title of a request that is to be made.
    pub(super) fn new_request(&self) -> Option<String> {
        let noun = self.tokens.iter().position(|token| NOUNS.contains(&token.folded.as_str()))?;
        let made = self.tokens[..noun].iter().any(|token| MAKING.contains(&token.folded.as_str()));
        // "Create a request" begins so; a story that mentions one does not.
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
    fn a_plain_wish_has_a_title() {
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
    fn what_is_no_plain_wish_has_none() {
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
