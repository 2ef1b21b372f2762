//! Reads a whole document: its pages in order, with headers and footers kept only once.

use hayro_interpret::hayro_syntax::{LoadPdfError, Pdf};
use hayro_interpret::kurbo::Rect;
use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, TransformExt, interpret_page};

use super::layout::paragraphs;
use super::margins::{PageLines, keep_margins_once};
use super::page::PageText;
use crate::{MAX_TEXT_BYTES, ReadError};

/// A PDF has its end marker within its last bytes.
const TAIL: usize = 2_048;

/// The title and the text of a PDF file. A paragraph never spans two pages.
pub(crate) fn read(bytes: Vec<u8>) -> Result<(Option<String>, String), ReadError> {
    if !bytes.iter().take(TAIL).copied().collect::<Vec<u8>>().windows(5).any(|five| five == b"%PDF-") {
        return Err(ReadError::BrokenPdf);
    }
    let used = bytes.iter().rposition(|byte| !byte.is_ascii_whitespace() && *byte != 0).map_or(0, |last| last + 1);
    if !bytes[used.saturating_sub(TAIL)..used].windows(5).any(|five| five == b"%%EOF") {
        // The rest could be read, but would look like the complete document.
        return Err(ReadError::CutOff);
    }
    let pdf = Pdf::new(bytes).map_err(|error| match error {
        LoadPdfError::Decryption(_) => ReadError::EncryptedPdf,
        LoadPdfError::Invalid => ReadError::BrokenPdf,
    })?;
    let cache = InterpreterCache::new();
    let (mut pages, mut size, mut drawn, mut decoded) = (Vec::new(), 0, 0, 0);
    for page in pdf.pages().iter() {
        let transform = page.initial_transform(true).to_kurbo();
        let (width, height) = page.render_dimensions();
        let bounds = Rect::new(0.0, 0.0, width.into(), height.into());
        let mut context = Context::new(transform, bounds, &cache, pdf.xref(), InterpreterSettings::default());
        let mut page_text = PageText::default();
        interpret_page(page, &mut context, &mut page_text);
        drawn += page_text.drawn();
        decoded += page_text.decoded();
        let lines = page_text.into_lines();
        size += lines.iter().map(|line| line.text.len()).sum::<usize>();
        if size > MAX_TEXT_BYTES {
            return Err(ReadError::TooMuchText);
        }
        pages.push(PageLines { lines, height: height.into() });
    }
    if pages.is_empty() {
        return Err(ReadError::BrokenPdf);
    }
    if decoded * 2 < drawn {
        return Err(ReadError::NamelessFonts);
    }
    if pages.iter().all(|page| page.lines.len() <= NUMBER_LINES && page.lines.iter().all(|line| is_page_number(&line.text))) {
        return Err(ReadError::PicturePdf);
    }
    keep_margins_once(&mut pages);
    let text = pages.iter().flat_map(|page| paragraphs(&page.lines)).collect::<Vec<_>>().join("\n\n");
    if !text.contains(char::is_alphanumeric) {
        return Err(ReadError::PicturePdf);
    }
    Ok((pdf.metadata().title.as_deref().and_then(title), text))
}

/// A scanned page has its number at the top, at the bottom, or at both.
const NUMBER_LINES: usize = 2;
/// Words beside the number of a page, in lower case.
const NUMBER_WORDS: [&str; 11] = ["page", "seite", "página", "pagina", "pág", "blatt", "p", "s", "of", "von", "de"];

/// Whether a line is only the number of its page, such as `- 3 -`, `Seite 3 von 10` or `xiv`.
fn is_page_number(line: &str) -> bool {
    let lower = line.to_lowercase();
    let words: Vec<&str> = lower.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_number = |word: &str| word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_roman = |word: &str| word.len() <= 6 && word.bytes().all(|byte| b"ivxlc".contains(&byte));
    words.len() <= 4 && words.iter().all(|word| is_number(word) || is_roman(word) || NUMBER_WORDS.contains(word))
}

/// Decodes the title: UTF-16 with a byte order mark, else UTF-8 if valid, else Latin-1. File names do not count as titles.
fn title(bytes: &[u8]) -> Option<String> {
    let wide = |from: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].as_chunks::<2>().0.iter().map(|two| from(*two)).collect();
        String::from_utf16_lossy(&units)
    };
    let title = match bytes {
        [0xFE, 0xFF, ..] => wide(u16::from_be_bytes),
        [0xFF, 0xFE, ..] => wide(u16::from_le_bytes),
        _ => std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned),
    };
    let title = title.trim_start_matches('\u{feff}').split(|letter: char| letter.is_whitespace() || letter.is_control());
    let title = title.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let title = title.strip_prefix("Microsoft Word - ").unwrap_or(&title);
    let is_file = [".doc", ".docx", ".odt", ".pdf", ".indd", ".tex", ".dvi", ".xls", ".xlsx", ".ppt", ".pptx"];
    let lower = title.to_lowercase();
    let useless =
        title.is_empty() || ["untitled", "(anonymous)"].contains(&lower.as_str()) || is_file.iter().any(|ending| lower.ends_with(ending));
    (!useless).then(|| title.to_owned())
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
