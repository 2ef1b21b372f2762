//! Reads a whole document: its pages in order, with headers and footers kept only once.

use std::collections::HashMap;

use hayro_interpret::hayro_syntax::{LoadPdfError, Pdf};
use hayro_interpret::kurbo::Rect;
use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, TransformExt, interpret_page};

use super::layout::paragraphs;
use super::page::PageText;
use super::{PdfFault, PdfText};
use crate::cli::knowledge::files::MAX_TEXT_BYTES;

/// A PDF has its end marker within its last bytes.
const TAIL: usize = 2_048;
/// A first or last line on at least this many pages, and on at least half of all pages, is a header or a footer.
const MIN_REPEATS: usize = 3;

/// The text of a PDF file.
pub(super) fn read(bytes: Vec<u8>) -> Result<PdfText, PdfFault> {
    if !bytes.iter().take(TAIL).copied().collect::<Vec<u8>>().windows(5).any(|five| five == b"%PDF-") {
        return Err(PdfFault::Broken);
    }
    let used = bytes.iter().rposition(|byte| !byte.is_ascii_whitespace() && *byte != 0).map_or(0, |last| last + 1);
    if !bytes[used.saturating_sub(TAIL)..used].windows(5).any(|five| five == b"%%EOF") {
        // The rest could be read, but would look like the complete document.
        return Err(PdfFault::CutOff);
    }
    let pdf = Pdf::new(bytes).map_err(|error| match error {
        LoadPdfError::Decryption(_) => PdfFault::Encrypted,
        LoadPdfError::Invalid => PdfFault::Broken,
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
        let paragraphs = paragraphs(&page_text.into_lines());
        size += paragraphs.iter().map(String::len).sum::<usize>();
        if size as u64 > MAX_TEXT_BYTES {
            return Err(PdfFault::TooMuchText);
        }
        pages.push(paragraphs);
    }
    if pages.is_empty() {
        return Err(PdfFault::Broken);
    }
    if decoded * 2 < drawn {
        return Err(PdfFault::NoLetters);
    }
    leave_out_repeats(&mut pages);
    let text = pages.concat().join("\n\n");
    if !text.contains(char::is_alphanumeric) {
        return Err(PdfFault::NoText);
    }
    Ok(PdfText { title: pdf.metadata().title.as_deref().and_then(title), text })
}

/// Keeps headers and footers only once: on every page they would match too many searches.
fn leave_out_repeats(pages: &mut [Vec<String>]) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for page in &*pages {
        for line in ends(page) {
            *counts.entry(line).or_default() += 1;
        }
    }
    let (mut kept, enough) = (Vec::new(), MIN_REPEATS.max(pages.len().div_ceil(2)));
    for page in pages {
        let ends = ends(page);
        page.retain(|paragraph| {
            let line = without_numbers(paragraph);
            let repeats = ends.contains(&line) && counts.get(&line).is_some_and(|count| *count >= enough);
            let repeated = repeats && kept.contains(&line);
            if repeats && !repeated {
                kept.push(line);
            }
            !repeated
        });
    }
}

/// The first and the last paragraph of a page, without duplicates.
fn ends(page: &[String]) -> Vec<String> {
    let mut ends: Vec<String> = [page.first(), page.last()].into_iter().flatten().map(|line| without_numbers(line)).collect();
    ends.dedup();
    ends
}

fn without_numbers(line: &str) -> String {
    line.chars().filter(|letter| !letter.is_numeric()).collect()
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
    let useless = title.is_empty() || lower == "untitled" || is_file.iter().any(|ending| lower.ends_with(ending));
    (!useless).then(|| title.to_owned())
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
