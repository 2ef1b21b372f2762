//! Extracts the text of an HTML page: headings, paragraphs, lists and tables as simple Markdown.
//!
//! html5ever's tokenizer finds tags, text and entities as browsers do. `htmd` and `html2text` build on the same parser, but their output is
//! for display: `htmd` escapes prose (`1\. May`, `a\_b`), writes addresses and marks, splits tables without a header row and recurses by
//! depth; `html2text` draws frames around tables and shows `nav` and `noscript`. The tokenizer alone also needs no tree in memory.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

use crate::table::push_row;
use crate::{MAX_TEXT_BYTES, ReadError};

/// Elements whose content is not text for readers.
const SKIPPED: [&str; 9] = ["script", "style", "noscript", "template", "svg", "nav", "iframe", "noembed", "noframes"];
/// Elements that never are inside a navigation; a navigation that is not closed ends at them.
const AFTER_NAV: [&str; 2] = ["main", "article"];
/// Elements that begin and end a paragraph.
const BLOCKS: [&str; 28] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "legend",
    "main",
    "menu",
    "option",
    "p",
    "section",
    "summary",
    "table",
];
/// Deeper lists are written at this depth.
const MAX_LIST_DEPTH: usize = 6;

/// The title and the text.
pub(crate) fn read(page: &str) -> Result<(Option<String>, String), ReadError> {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(page));
    let tokenizer = Tokenizer::new(PageSink::default(), TokenizerOpts::default());
    // The tokenizer pauses after a script; nothing is executed here.
    while !input.is_empty() {
        let _ = tokenizer.feed(&input);
    }
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish()
}

#[derive(Default)]
struct PageSink(RefCell<Page>);

impl TokenSink for PageSink {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let mut page = self.0.borrow_mut();
        match token {
            Token::CharacterTokens(text) => page.text(&text),
            Token::TagToken(tag) => return page.tag(&tag),
            Token::DoctypeToken(_) | Token::CommentToken(_) | Token::NullCharacterToken | Token::EOFToken | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}

/// The text so far, and the elements that change how the next text is written.
#[derive(Default)]
struct Page {
    out: String,
    title: Option<String>,
    is_title: bool,
    /// The element that is skipped, and how many of its name are open.
    skipped: Option<(String, usize)>,
    /// The number of the next item of each open list; `None` for lists without numbers.
    lists: Vec<Option<u64>>,
    /// Open lists beyond the limit. Their items belong to the innermost list within it.
    deeper_lists: usize,
    is_preformatted: bool,
    /// The cells of the open table row. The text of the last one is still being written.
    row: Option<Vec<String>>,
    written: usize,
    too_much: bool,
}

impl Page {
    fn text(&mut self, text: &str) {
        if self.is_title {
            self.title.get_or_insert_default().push_str(text);
        } else if self.skipped.is_none() && !self.too_much {
            let preformatted = self.is_preformatted;
            let out = self.target();
            if preformatted {
                out.push_str(text);
            } else {
                push_words(out, text);
            }
            self.count(text.len());
        }
    }

    /// Counts what is written; a page with too much text is not read further.
    const fn count(&mut self, bytes: usize) {
        self.written += bytes;
        self.too_much = self.written > MAX_TEXT_BYTES;
    }

    /// Where text is written: the open cell, or the page.
    fn target(&mut self) -> &mut String {
        match self.row.as_mut().and_then(|cells| cells.last_mut()) {
            Some(cell) => cell,
            None => &mut self.out,
        }
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let (name, is_start) = (&*tag.name, tag.kind == TagKind::StartTag);
        if self.is_skipped(name, is_start, tag.self_closing) {
            return if is_start && !tag.self_closing { raw(name) } else { TokenSinkResult::Continue };
        }
        // Marks and blank lines.
        self.count(4);
        if self.too_much {
            return TokenSinkResult::Continue;
        }
        match name {
            "title" => {
                // Only the first title counts.
                self.is_title = is_start && self.title.is_none();
                return if is_start { raw(name) } else { TokenSinkResult::Continue };
            }
            "textarea" if is_start => return raw(name),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(usize::from(name.as_bytes()[1] - b'0'), is_start),
            "ul" | "ol" => self.list(tag, is_start),
            "li" if is_start => self.item(),
            "br" => self.target().push('\n'),
            "pre" => self.preformatted(is_start),
            "table" | "tr" | "td" | "th" => self.table(name, is_start),
            _ if BLOCKS.contains(&name) => self.end_paragraph(),
            _ => {}
        }
        TokenSinkResult::Continue
    }

    /// Whether the tag is, begins or ends something that is not text.
    fn is_skipped(&mut self, name: &str, is_start: bool, self_closing: bool) -> bool {
        if let Some((open, depth)) = &mut self.skipped {
            if open == name {
                *depth = if !is_start {
                    *depth - 1
                } else if self_closing {
                    *depth
                } else {
                    *depth + 1
                };
                if *depth == 0 {
                    self.skipped = None;
                }
                return true;
            }
            if open != "nav" || !is_start || !AFTER_NAV.contains(&name) {
                return true;
            }
            self.skipped = None;
        }
        if is_start && SKIPPED.contains(&name) {
            self.skipped = (!self_closing).then(|| (name.to_owned(), 1));
            return true;
        }
        false
    }

    fn end_paragraph(&mut self) {
        let out = self.target();
        if !out.is_empty() {
            out.push_str("\n\n");
        }
    }

    fn heading(&mut self, level: usize, is_start: bool) {
        self.end_paragraph();
        if is_start {
            let out = self.target();
            (0..level).for_each(|_| out.push('#'));
            out.push(' ');
        }
    }

    fn list(&mut self, tag: &Tag, is_start: bool) {
        if !is_start && self.deeper_lists > 0 {
            self.deeper_lists -= 1;
        } else if !is_start {
            self.lists.pop();
        } else if self.lists.len() == MAX_LIST_DEPTH {
            self.deeper_lists += 1;
        } else {
            let first = tag.attrs.iter().find(|attribute| &*attribute.name.local == "start").and_then(|start| start.value.parse().ok());
            self.lists.push((&*tag.name == "ol").then(|| first.unwrap_or(1)));
        }
        if self.lists.len() <= 1 {
            self.end_paragraph();
        }
    }

    fn item(&mut self) {
        let depth = self.lists.len().saturating_sub(1);
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            _ => "- ".to_owned(),
        };
        let out = self.target();
        out.push('\n');
        (0..depth).for_each(|_| out.push_str("  "));
        out.push_str(&mark);
    }

    fn preformatted(&mut self, is_start: bool) {
        if is_start == self.is_preformatted {
            return;
        }
        self.is_preformatted = is_start;
        let in_cell = self.row.as_ref().is_some_and(|cells| !cells.is_empty());
        if is_start {
            self.end_paragraph();
        }
        if !in_cell {
            self.target().push_str(if is_start { "```\n" } else { "\n```" });
        }
        if !is_start {
            self.end_paragraph();
        }
    }

    fn table(&mut self, name: &str, is_start: bool) {
        match (name, is_start) {
            ("table", _) => {
                self.end_row();
                self.end_paragraph();
            }
            ("tr", _) => {
                self.end_row();
                self.row = is_start.then(Vec::new);
            }
            (_, true) => self.row.get_or_insert_default().push(String::new()),
            (_, false) => {}
        }
    }

    /// Writes the open row. A single cell is layout, not a table, and keeps its paragraphs.
    fn end_row(&mut self) {
        let Some(cells) = self.row.take() else { return };
        if let [cell] = cells.as_slice() {
            self.out.push_str("\n\n");
            self.out.push_str(cell);
            self.out.push_str("\n\n");
        } else {
            if !self.out.is_empty() && !self.out.ends_with('\n') {
                self.out.push('\n');
            }
            push_row(&mut self.out, cells.iter().map(|cell| without_heading_mark(cell)));
        }
    }

    fn finish(mut self) -> Result<(Option<String>, String), ReadError> {
        self.end_row();
        if self.is_preformatted {
            self.preformatted(false);
        }
        if self.too_much {
            return Err(ReadError::TooMuchText);
        }
        let title = self.title.map(|title| title.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|title| !title.is_empty());
        Ok((title, tidy(&self.out)))
    }
}

/// A cell without the mark of a heading inside it. A cell such as `#4711` is not a heading.
fn without_heading_mark(cell: &str) -> &str {
    let cell = cell.trim_start();
    let marks = cell.bytes().take_while(|byte| *byte == b'#').count();
    match cell.get(marks..) {
        Some(rest) if (1..=6).contains(&marks) && rest.starts_with(' ') => rest.trim_start(),
        _ => cell,
    }
}

/// How the tokenizer reads the content of an element that has no elements inside.
fn raw(name: &str) -> TokenSinkResult<()> {
    match name {
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "iframe" | "noembed" | "noframes" => TokenSinkResult::RawData(RawKind::Rawtext),
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        _ => TokenSinkResult::Continue,
    }
}

/// Appends words with one space between them, as a browser shows them, without soft hyphens and invisible spaces.
fn push_words(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '\u{ad}' | '\u{200b}' | '\u{feff}' => {}
            letter if letter.is_whitespace() => {
                if !out.is_empty() && !out.ends_with(char::is_whitespace) {
                    out.push(' ');
                }
            }
            letter => out.push(letter),
        }
    }
}

/// Removes spaces at line ends, and all but one of several blank lines, but not inside code.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut blank, mut is_code) = (0, false);
    for line in text.lines() {
        let is_fence = line == "```";
        is_code ^= is_fence;
        let line = line.trim_end();
        // A heading or an item without text.
        let is_empty = line.is_empty() || (!is_code && matches!(line.trim(), "-" | "#" | "##" | "###" | "####" | "#####" | "######"));
        blank = if is_empty && !is_code { blank + 1 } else { 0 };
        if blank < 2 {
            out.push_str(if is_empty { "" } else { line });
            out.push('\n');
        }
    }
    out.trim().to_owned()
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
