//! A document as a client sends it, and its conversion into rows.

use crate::{CUT, Guess, NewDocument, chunks, guess_language};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use werkruf_contract::{Clock, hex};

/// A document to add.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Document {
    /// Derived from the digest of the document if it is missing.
    #[serde(default)]
    pub id: Option<String>,
    #[serde(default)]
    pub title: String,
    pub text: String,
    /// A code such as `de`; guessed if it is missing.
    #[serde(default)]
    pub language: Option<String>,
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// The most characters of a title.
const MAX_TITLE: usize = 500;

impl Document {
    /// Splits the text into chunks and computes the digest of all fields.
    pub(super) fn cut(self, clock: &Clock) -> NewDocument {
        let Self { id, title, text, language, metadata } = self;
        let given = language.filter(|code| !code.trim().is_empty());
        let metadata = Value::Object(metadata).to_string();
        let content = digest(&[&title, &text, given.as_deref().unwrap_or_default(), &metadata]);
        // Every chunk is indexed with the title, so a longer one would multiply the text.
        let title: String = title.chars().take(MAX_TITLE).collect();
        let (language, guessed) = match given {
            Some(code) => (Some(code), false),
            None => match guess_language(&format!("{title}\n{text}")) {
                Guess::Known(language) => (Some(language.code().to_owned()), true),
                Guess::Other(code) => (code.map(str::to_owned), true),
                Guess::Unclear => (None, false),
            },
        };
        let mut cut = chunks(&text);
        if cut.is_empty() && !title.trim().is_empty() {
            // A document with only a title is searchable by its title.
            cut = chunks(&title);
        }
        NewDocument {
            id: clock.new_id(),
            document_id: id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("doc_{}", &content[..24])),
            title,
            language,
            guessed,
            metadata,
            digest: digest(&[CUT, &content]),
            chunks: cut.into_iter().map(|chunk| (clock.new_id(), chunk)).collect(),
        }
    }
}

fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        // The length comes first, so that moving text between fields changes the digest.
        hasher.update(part.len().to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_title_or_heading_does_not_multiply_the_text() {
        let long = "Word ".repeat(100_000);
        let text = format!("# {long}\n\n{}", "A paragraph of the body.\n\n".repeat(2_000));
        let bytes = text.len();
        let document = Document { title: long, text, ..Document::default() }.cut(&Clock::system(0));
        let stored: usize = document.chunks.iter().map(|(_, chunk)| chunk.heading.len() + chunk.content.len()).sum();
        assert!(document.title.len() <= MAX_TITLE && stored < 2 * bytes, "{stored}");
    }

    #[test]
    fn the_digest_covers_title_text_and_language() {
        let clock = Clock::system(0);
        let plain = Document { title: "a".to_owned(), text: "b".to_owned(), ..Document::default() };
        let digest = plain.clone().cut(&clock).digest;
        assert_eq!(plain.clone().cut(&clock).digest, digest);
        let moved_text = Document { title: "ab".to_owned(), text: String::new(), ..Document::default() };
        let with_language = Document { language: Some("de".to_owned()), ..plain };
        for other in [moved_text, with_language] {
            assert_ne!(other.cut(&clock).digest, digest);
        }
    }

    #[test]
    fn a_language_is_guessed_unless_given() {
        let clock = Clock::system(0);
        let text = "Die Meilen verfallen nach drei Jahren, wenn sie nicht genutzt werden.".to_owned();
        let guessed = Document { text: text.clone(), ..Document::default() }.cut(&clock);
        assert_eq!((guessed.language.as_deref(), guessed.guessed), (Some("de"), true));
        let given = Document { text, language: Some("fr".to_owned()), ..Document::default() }.cut(&clock);
        assert_eq!((given.language.as_deref(), given.guessed), (Some("fr"), false));
    }

    #[test]
    fn a_text_in_another_language_differs_from_one_without_signs() {
        let cut = |text: &str| Document { text: text.to_owned(), ..Document::default() }.cut(&Clock::system(0));
        let french = cut("Le bagage à main ne doit pas peser plus de huit kilos.");
        assert_eq!((french.language.as_deref(), french.guessed), (Some("fr"), true));
        let russian = cut("Срок действия миль истекает через три года.");
        assert_eq!((russian.language, russian.guessed), (None, true));
        let short = cut("Boeing 777-300ER cabin");
        assert_eq!((short.language, short.guessed), (None, false));
    }
}
