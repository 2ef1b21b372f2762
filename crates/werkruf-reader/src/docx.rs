//! Reads DOCX files: paragraphs, headings, lists and tables in order, then the footnotes.

use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::archive::{Archive, MAX_DEPTH, character};
use crate::docx_styles::{Role, Styles, attribute, merged, outline};
use crate::table::push_row;
use crate::{MAX_TEXT_BYTES, ReadError};

/// Not shown: the other form of a drawing, the old place of moved text, deleted text, instructions of fields, earlier formats.
const SKIPPED: [&str; 6] = ["Fallback", "moveFrom", "del", "delText", "instrText", "pPrChange"];
/// Tables in tables beyond this depth are read as text of the cell around them.
const MAX_TABLES: usize = 8;

/// The title and the text.
pub(crate) fn read(bytes: &[u8]) -> Result<(Option<String>, String), ReadError> {
    let mut archive = Archive::open(bytes, "DOCX")?;
    let title = archive.title();
    let styles = Styles::read(&mut archive);
    let mut body = Body::new(&styles);
    let broken = archive.broken();
    let document = main_part(&mut archive);
    body.read(archive.xml(&document).ok_or(broken)?, broken)?;
    for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
        if let Some(xml) = archive.xml(notes) {
            body.end_block();
            body.read(xml, broken)?;
        }
    }
    Ok((title, body.out.trim_end().to_owned()))
}

/// The name of the part with the text, which some programs number.
fn main_part(archive: &mut Archive<'_>) -> String {
    let usual = || "word/document.xml".to_owned();
    let Some(mut xml) = archive.xml("_rels/.rels") else { return usual() };
    let mut buffer = Vec::new();
    while let Ok(event) = xml.read_event_into(&mut buffer) {
        match event {
            Event::Start(tag) | Event::Empty(tag) if attribute(&tag, "Type").is_some_and(|kind| kind.ends_with("/officeDocument")) => {
                return attribute(&tag, "Target").map_or_else(usual, |target| target.trim_start_matches('/').to_owned());
            }
            Event::Eof => break,
            _ => {}
        }
        buffer.clear();
    }
    usual()
}

/// A paragraph that is being read.
#[derive(Default)]
struct Paragraph {
    role: Role,
    text: String,
}

/// A table that is being read.
#[derive(Default)]
struct Table {
    cells: Vec<String>,
}

struct Body<'a> {
    styles: &'a Styles,
    out: String,
    /// A text box inside a paragraph has paragraphs of its own.
    paragraphs: Vec<Paragraph>,
    tables: Vec<Table>,
    /// Open tables beyond the limit. Their rows belong to the innermost table within it.
    deeper_tables: usize,
    was_item: bool,
    written: usize,
}

impl<'a> Body<'a> {
    const fn new(styles: &'a Styles) -> Self {
        Self { styles, out: String::new(), paragraphs: Vec::new(), tables: Vec::new(), deeper_tables: 0, was_item: false, written: 0 }
    }

    fn read(&mut self, mut xml: Reader<impl BufRead>, broken: ReadError) -> Result<(), ReadError> {
        let (mut buffer, mut depth, mut skipped, mut is_text) = (Vec::new(), 0_usize, None, false);
        loop {
            match xml.read_event_into(&mut buffer).map_err(|_| broken)? {
                Event::Start(tag) => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(broken);
                    }
                    let name = tag.local_name();
                    if skipped.is_none() && SKIPPED.contains(&name.as_ref()) {
                        skipped = Some(depth);
                    }
                    if skipped.is_none() {
                        is_text = name.as_ref() == "t";
                        self.start(&tag);
                    }
                }
                Event::Empty(tag) if skipped.is_none() => {
                    self.start(&tag);
                    self.end(tag.local_name().as_ref());
                }
                Event::End(tag) => {
                    if skipped == Some(depth) {
                        skipped = None;
                    } else if skipped.is_none() {
                        self.end(tag.local_name().as_ref());
                    }
                    depth = depth.saturating_sub(1);
                    is_text = false;
                }
                Event::Text(text) if is_text && skipped.is_none() => self.push(&text.xml10_content()),
                Event::CData(text) if is_text && skipped.is_none() => self.push(&text.xml10_content()),
                Event::GeneralRef(name) if is_text && skipped.is_none() => {
                    if let Some(letter) = character(&name) {
                        self.push(letter.encode_utf8(&mut [0; 4]));
                    }
                }
                Event::Eof => return if depth == 0 { Ok(()) } else { Err(broken) },
                _ => {}
            }
            buffer.clear();
            if self.written > MAX_TEXT_BYTES {
                return Err(ReadError::TooMuchText);
            }
        }
    }

    fn start(&mut self, tag: &BytesStart<'_>) {
        match tag.local_name().as_ref() {
            "p" => self.paragraphs.push(Paragraph::default()),
            "pStyle" => {
                let role = attribute(tag, "val").map(|id| self.styles.role(&id)).unwrap_or_default();
                self.set_role(role);
            }
            "outlineLvl" => self.set_role(outline(tag)),
            "numPr" => self.set_role(Role::Item(0)),
            "ilvl" => {
                let depth = attribute(tag, "val").and_then(|depth| depth.parse().ok()).unwrap_or(0);
                self.set_role(Role::Item(depth));
            }
            "tab" | "ptab" => self.push(" "),
            "br" | "cr" => self.push("\n"),
            "noBreakHyphen" => self.push("-"),
            "tbl" if self.tables.len() < MAX_TABLES => {
                self.end_block();
                self.tables.push(Table::default());
            }
            "tbl" => self.deeper_tables += 1,
            "tc" => {
                if let Some(table) = self.tables.last_mut() {
                    table.cells.push(String::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        match name {
            "p" => self.end_paragraph(),
            "tr" => {
                let cells = self.tables.last_mut().map(|table| std::mem::take(&mut table.cells)).unwrap_or_default();
                let is_inner = self.tables.len() > 1;
                let mut row = String::new();
                push_row(&mut row, &cells);
                if is_inner {
                    // A row inside a cell: its cells become words of that cell.
                    row = cells.join(" ");
                }
                let inner = self.tables.pop();
                self.target().push_str(&row);
                self.tables.extend(inner);
            }
            "tbl" if self.deeper_tables > 0 => self.deeper_tables -= 1,
            "tbl" => {
                self.tables.pop();
                self.end_block();
            }
            _ => {}
        }
    }

    fn set_role(&mut self, role: Role) {
        if let Some(paragraph) = self.paragraphs.last_mut() {
            paragraph.role = merged(paragraph.role, role);
        }
    }

    fn push(&mut self, text: &str) {
        self.written += text.len();
        if let Some(paragraph) = self.paragraphs.last_mut() {
            paragraph.text.push_str(text);
        }
    }

    /// Where paragraphs are written: the open cell, or the text.
    fn target(&mut self) -> &mut String {
        match self.tables.last_mut().and_then(|table| table.cells.last_mut()) {
            Some(cell) => cell,
            None => &mut self.out,
        }
    }

    fn end_paragraph(&mut self) {
        let Some(Paragraph { role, text }) = self.paragraphs.pop() else { return };
        let text = text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let (was_item, is_cell) = (self.was_item, !self.tables.is_empty());
        let out = self.target();
        if is_cell {
            out.push_str(text);
            return out.push(' ');
        }
        match role {
            Role::Paragraph => {
                end_list(out, was_item);
                out.push_str(text);
                out.push_str("\n\n");
            }
            Role::Heading(level) => {
                end_list(out, was_item);
                out.push_str(&format!("{} {}\n\n", "#".repeat(level), text.replace('\n', " ")));
            }
            Role::Item(depth) => out.push_str(&format!("{}- {text}\n", "  ".repeat(depth.min(8)))),
        }
        self.was_item = matches!(role, Role::Item(_));
    }

    /// Separates a table from what stands before and after it.
    fn end_block(&mut self) {
        if self.tables.is_empty() && !self.out.is_empty() {
            let blank = if self.out.ends_with("\n\n") {
                ""
            } else if self.out.ends_with('\n') {
                "\n"
            } else {
                "\n\n"
            };
            self.out.push_str(blank);
            self.was_item = false;
        }
    }
}

fn end_list(out: &mut String, was_item: bool) {
    if was_item {
        out.push('\n');
    }
}

#[cfg(test)]
#[path = "docx_tests.rs"]
mod tests;
