//! Decodes text: UTF-8, UTF-16 with and without a byte order mark, and Windows-1252, which includes Latin-1.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use crate::ReadError;

/// HTML names its encoding within its first bytes.
const HTML_HEAD: usize = 2_048;

/// The text of a file. `declared` is the encoding that the file names for itself. Line ends become `\n`.
pub(crate) fn decode(bytes: &[u8], declared: Option<&'static Encoding>) -> Result<String, ReadError> {
    let text = match Encoding::for_bom(bytes) {
        Some((encoding, mark)) => strict(encoding, &bytes[mark..])?,
        None => without_mark(bytes, declared)?,
    };
    let text = if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.into_owned() };
    Ok(text)
}

/// Like [`decode`], with the encoding that the page names.
pub(crate) fn decode_html(bytes: &[u8]) -> Result<String, ReadError> {
    decode(bytes, declared_encoding(&bytes[..bytes.len().min(HTML_HEAD)]))
}

fn without_mark<'a>(bytes: &'a [u8], declared: Option<&'static Encoding>) -> Result<Cow<'a, str>, ReadError> {
    if bytes.contains(&0) {
        return Ok(Cow::Owned(utf16_without_mark(bytes)?));
    }
    // Valid UTF-8 is practically never another encoding, whatever the file says about itself.
    if let Ok(text) = strict(UTF_8, bytes) {
        return Ok(text);
    }
    strict(declared.filter(|encoding| *encoding != UTF_8).unwrap_or(WINDOWS_1252), bytes)
}

/// Decodes without replacement characters, and refuses control characters, which no text has.
fn strict<'a>(encoding: &'static Encoding, bytes: &'a [u8]) -> Result<Cow<'a, str>, ReadError> {
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes).ok_or(ReadError::Binary)?;
    if text.chars().any(is_binary) { Err(ReadError::Binary) } else { Ok(text) }
}

fn is_binary(letter: char) -> bool {
    (letter.is_control() && !matches!(letter, '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{1b}')) || letter == '\u{ffff}'
}

/// The byte order in which more of the most common characters appear.
fn utf16_without_mark(bytes: &[u8]) -> Result<String, ReadError> {
    let common = |text: &str| text.chars().filter(|letter| matches!(letter, ' ' | '\n' | '.' | ',' | 'e')).count();
    let read = |encoding| strict(encoding, bytes).ok().map(|text| (common(&text), text.into_owned()));
    let best = [read(UTF_16LE), read(UTF_16BE)].into_iter().flatten().max_by_key(|(count, _)| *count);
    best.filter(|(count, _)| *count > 0).map(|(_, text)| text).ok_or(ReadError::Binary)
}

/// `<meta charset=…>`, `<meta … content="text/html; charset=…">` or `<?xml … encoding="…"?>`.
fn declared_encoding(head: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    ["charset=", "encoding="].into_iter().find_map(|key| {
        let value = head.split_once(key)?.1.trim_start_matches(['"', '\'', ' ']);
        let label = value.split(|letter: char| !(letter.is_ascii_alphanumeric() || "-_:.".contains(letter))).next()?;
        Encoding::for_label(label.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTENCE: &str = "Grüße aus Köln: 5 € für „Übersee“.\nZweite Zeile.";

    fn utf16(order: fn(u16) -> [u8; 2], mark: bool, text: &str) -> Vec<u8> {
        let mark = mark.then_some(0xFEFF);
        mark.into_iter().chain(text.encode_utf16()).flat_map(order).collect()
    }

    #[test]
    fn every_encoding_gives_the_same_text() {
        let windows = WINDOWS_1252.encode(SENTENCE).0.into_owned();
        let mut utf8_mark = b"\xEF\xBB\xBF".to_vec();
        utf8_mark.extend(SENTENCE.as_bytes());
        for bytes in [
            SENTENCE.as_bytes().to_vec(),
            utf8_mark,
            windows,
            utf16(u16::to_le_bytes, true, SENTENCE),
            utf16(u16::to_be_bytes, true, SENTENCE),
            utf16(u16::to_le_bytes, false, SENTENCE),
            utf16(u16::to_be_bytes, false, SENTENCE),
            SENTENCE.replace('\n', "\r\n").into_bytes(),
        ] {
            assert_eq!(decode(&bytes, None).unwrap(), SENTENCE);
        }
        let russian = "Мили сгорают через три года. Проверьте счёт.";
        assert_eq!(decode(&utf16(u16::to_le_bytes, false, russian), None).unwrap(), russian);
        assert_eq!(decode(b"Gr\xFC\xDFe", None).unwrap(), "Grüße", "Latin-1");
    }

    #[test]
    fn html_names_its_encoding() {
        let russian = "<meta charset='windows-1251'>Мили";
        let bytes = encoding_rs::WINDOWS_1251.encode(russian).0.into_owned();
        assert_eq!(decode_html(&bytes).unwrap(), russian);
        assert_eq!(
            decode_html("<?xml version='1.0' encoding='iso-8859-1'?>ü".as_bytes()).unwrap(),
            "<?xml version='1.0' encoding='iso-8859-1'?>ü"
        );
    }

    #[test]
    fn binary_files_are_refused() {
        let counting: Vec<u8> = (0..=255).collect();
        for bytes in [
            &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..],
            b"\x7fELF\x02\x01\x01\0\0\0",
            &counting,
            b"MZ\x90\x01\x02",
            &[0, 0, 0, 0],
            b"\xFF\xFE\x00\xD8\x00",
        ] {
            assert_eq!(decode(bytes, None).unwrap_err(), ReadError::Binary, "{bytes:?}");
        }
    }
}
