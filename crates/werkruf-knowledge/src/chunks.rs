//! Splits a document into chunks of whole paragraphs, about a thousand characters long, without overlap, each with its headings.
//!
//! Paragraphs, tables and code are kept whole if possible. Only a block above the hard limit is split, at sentences, and only
//! then is a sentence part of two chunks.

/// In characters: the target size of a chunk of several blocks, the maximum size of a piece of a long block, and the size above which a block
/// is split. A block slightly above the maximum piece size is kept whole, because its last sentences alone would match no query.
const TARGET: usize = 1_000;
const MAX_PIECE: usize = 1_600;
const LIMIT: usize = 2_000;
/// The approximate length of a sentence; a piece may exceed its equal share by this much.
const SENTENCE: usize = 100;
/// Tables and code are useless in pieces; only above this size are they split, at lines.
const INDIVISIBLE_LIMIT: usize = 6_000;

/// The most characters of a heading. Every chunk below a heading repeats it, so a longer one would multiply the text; it is a paragraph.
const MAX_HEADING: usize = 200;

/// A chunk of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The headings of the chunk, outermost first, joined by " > ".
    pub heading: String,
    /// The text to show.
    pub content: String,
}

impl Chunk {
    /// The text that is indexed and embedded: every chunk includes the title and the headings.
    pub fn indexed(title: &str, heading: &str, content: &str) -> String {
        let lines: Vec<&str> = [title.trim(), heading, content].into_iter().filter(|line| !line.is_empty()).collect();
        lines.join("\n")
    }
}

/// A paragraph, list, table or code block.
struct Block {
    text: String,
    /// True for tables and code.
    indivisible: bool,
}

/// Splits a document, Markdown or plain text.
pub fn chunks(text: &str) -> Vec<Chunk> {
    let mut chunker = Chunker::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if let Some(fence) = ["```", "~~~"].into_iter().find(|fence| trimmed.starts_with(fence)) {
            chunker.end_block(false);
            chunker.line(line);
            for inside in lines.by_ref() {
                chunker.line(inside);
                if inside.trim().starts_with(fence) {
                    break;
                }
            }
            chunker.end_block(true);
        } else if let Some((level, heading)) = heading(trimmed) {
            chunker.end_block(false);
            chunker.start_section(level, heading);
        } else if trimmed.is_empty() {
            chunker.end_block(false);
        } else {
            chunker.line(line.trim_end());
        }
    }
    chunker.end_block(false);
    chunker.flush();
    chunker.add_empty_section(1);
    chunker.done
}

/// `## Heading ##` → 2 and its text. A line that is too long is no heading.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let words = line.get(level..)?.strip_prefix([' ', '\t'])?.trim_end_matches('#').trim();
    ((1..=6).contains(&level) && !words.is_empty() && count(words) <= MAX_HEADING).then_some((level, words))
}

#[derive(Default)]
struct Chunker {
    done: Vec<Chunk>,
    path: Vec<(usize, String)>,
    /// Whether the innermost heading has any text below it.
    has_body: bool,
    block: String,
    /// The text of the next chunk so far.
    pending: String,
}

impl Chunker {
    fn line(&mut self, line: &str) {
        if !self.block.is_empty() {
            self.block.push('\n');
        }
        self.block.push_str(line);
    }

    fn end_block(&mut self, code: bool) {
        if self.block.trim().is_empty() {
            self.block.clear();
            return;
        }
        let text = std::mem::take(&mut self.block);
        let indivisible = code || is_table(&text);
        self.has_body = true;
        self.add_block(&Block { text, indivisible });
    }

    /// A heading ends the chunk and changes the heading path.
    fn start_section(&mut self, level: usize, heading: &str) {
        self.flush();
        self.add_empty_section(level);
        self.path.retain(|(above, _)| *above < level);
        self.path.push((level, heading.to_owned()));
        self.has_body = false;
    }

    /// Adds a chunk for a heading without text below it, so that the heading can be found.
    fn add_empty_section(&mut self, next: usize) {
        if let Some((level, heading)) = self.path.last().filter(|_| !self.has_body)
            && *level >= next
        {
            self.done.push(Chunk { heading: self.heading_path(), content: heading.clone() });
        }
    }

    fn heading_path(&self) -> String {
        self.path.iter().map(|(_, heading)| heading.as_str()).collect::<Vec<_>>().join(" > ")
    }

    fn add_block(&mut self, block: &Block) {
        let size = count(&block.text);
        if size > if block.indivisible { INDIVISIBLE_LIMIT } else { LIMIT } {
            self.flush();
            let pieces = if block.indivisible { by_lines(&block.text) } else { by_sentences(&block.text) };
            let heading = self.heading_path();
            self.done.extend(pieces.into_iter().map(|content| Chunk { heading: heading.clone(), content }));
            return;
        }
        if !self.pending.is_empty() && count(&self.pending) + size > TARGET {
            self.flush();
        }
        if !self.pending.is_empty() {
            self.pending.push_str("\n\n");
        }
        self.pending.push_str(&block.text);
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let content = std::mem::take(&mut self.pending);
            self.done.push(Chunk { heading: self.heading_path(), content });
        }
    }
}

fn is_table(block: &str) -> bool {
    block.lines().count() > 1 && block.lines().all(|line| line.trim_start().starts_with('|'))
}

fn count(text: &str) -> usize {
    text.chars().count()
}

/// Splits into pieces of whole lines.
fn by_lines(text: &str) -> Vec<String> {
    gather(text.lines().flat_map(|line| split_long(line, MAX_PIECE)), "\n", MAX_PIECE, false)
}

/// Splits into pieces of whole sentences with about equal lengths, because a short remainder would match no query. The last sentence of a
/// piece is the first of the next.
fn by_sentences(text: &str) -> Vec<String> {
    let size = count(text);
    let even = (size.div_ceil(size.div_ceil(MAX_PIECE)) + SENTENCE).min(MAX_PIECE);
    gather(sentences(text).into_iter().flat_map(|sentence| split_long(sentence, MAX_PIECE)), " ", even, true)
}

fn gather<'a>(parts: impl Iterator<Item = &'a str>, between: &str, target: usize, overlap: bool) -> Vec<String> {
    let mut done: Vec<String> = Vec::new();
    let (mut piece, mut last) = (String::new(), "");
    for part in parts {
        if !piece.is_empty() && count(&piece) + count(part) > target {
            done.push(std::mem::take(&mut piece));
            // A sentence that fills much of a chunk is not repeated.
            if overlap && count(last) + count(part) <= target && count(last) < target / 3 {
                piece.push_str(last);
            }
        }
        if !piece.is_empty() {
            piece.push_str(between);
        }
        piece.push_str(part);
        last = part;
    }
    if !piece.is_empty() {
        done.push(piece);
    }
    done
}

/// Splits after `.`, `!`, `?` or `…` before white space.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut ended) = (0, false);
    for (at, letter) in text.char_indices() {
        if letter.is_whitespace() && ended {
            found.push(text[start..at].trim());
            start = at;
        }
        ended = matches!(letter, '.' | '!' | '?' | '…') || (ended && matches!(letter, '"' | '»' | '”' | ')'));
    }
    found.push(text[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// Splits text without sentence or line ends at white space, or anywhere if there is none.
fn split_long(text: &str, most: usize) -> Vec<&str> {
    let mut rest = text;
    let mut found = Vec::new();
    while let Some((limit, _)) = rest.char_indices().nth(most) {
        let cut = rest[..limit].rfind(char::is_whitespace).filter(|cut| *cut > 0).unwrap_or(limit);
        found.push(rest[..cut].trim_end());
        rest = rest[cut..].trim_start();
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
