//! A document as chunks: whole paragraphs of about a thousand characters, no overlap, each with the headings above it.
//!
//! Paragraphs, tables and code stay whole where they can. Only a block beyond the hard limit is cut, at sentences, and only there does
//! a sentence stand in two chunks.

/// What a chunk of several blocks should have, what a piece of a long block may have, and what a block may have before it is cut. In
/// characters. A block a little over the limit stays whole: its last sentences alone would be found by nothing.
const TARGET: usize = 1_000;
const PIECE: usize = 1_600;
const LIMIT: usize = 2_000;
/// About what a sentence has; so much over its share may a piece be.
const SENTENCE: usize = 100;
/// Tables and code are of no use in pieces; beyond this they are cut at lines all the same.
const SOLID_LIMIT: usize = 6_000;

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The headings above it, outermost first, joined by " > ".
    pub heading: String,
    /// What is shown.
    pub content: String,
}

impl Chunk {
    /// What is indexed and embedded: the title and the headings belong to every piece.
    pub fn indexed(title: &str, heading: &str, content: &str) -> String {
        let lines: Vec<&str> = [title.trim(), heading, content].into_iter().filter(|line| !line.is_empty()).collect();
        lines.join("\n")
    }
}

/// A paragraph, a list, a table, a piece of code.
struct Block {
    text: String,
    /// Tables and code.
    solid: bool,
}

/// Cuts a document, Markdown or plain.
pub fn chunks(text: &str) -> Vec<Chunk> {
    let mut cutter = Cutter::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if let Some(fence) = ["```", "~~~"].into_iter().find(|fence| trimmed.starts_with(fence)) {
            cutter.end_block(false);
            cutter.line(line);
            for inside in lines.by_ref() {
                cutter.line(inside);
                if inside.trim().starts_with(fence) {
                    break;
                }
            }
            cutter.end_block(true);
        } else if let Some((level, heading)) = heading(trimmed) {
            cutter.end_block(false);
            cutter.open(level, heading);
        } else if trimmed.is_empty() {
            cutter.end_block(false);
        } else {
            cutter.line(line.trim_end());
        }
    }
    cutter.end_block(false);
    cutter.flush();
    cutter.keep_empty_section(1);
    cutter.done
}

/// `## Heading ##` → 2 and its words.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let words = line.get(level..)?.strip_prefix([' ', '\t'])?.trim_end_matches('#').trim();
    ((1..=6).contains(&level) && !words.is_empty()).then_some((level, words))
}

#[derive(Default)]
struct Cutter {
    done: Vec<Chunk>,
    path: Vec<(usize, String)>,
    /// Whether anything stands under the innermost heading.
    has_body: bool,
    block: String,
    /// What the next chunk holds so far.
    pending: String,
}

impl Cutter {
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
        let solid = code || is_table(&text);
        self.has_body = true;
        self.take(&Block { text, solid });
    }

    /// A heading ends the chunk and changes the path.
    fn open(&mut self, level: usize, heading: &str) {
        self.flush();
        self.keep_empty_section(level);
        self.path.retain(|(above, _)| *above < level);
        self.path.push((level, heading.to_owned()));
        self.has_body = false;
    }

    /// A heading with nothing below it is all there is to find of its section.
    fn keep_empty_section(&mut self, next: usize) {
        if let Some((level, heading)) = self.path.last().filter(|_| !self.has_body)
            && *level >= next
        {
            self.done.push(Chunk { heading: self.above(), content: heading.clone() });
        }
    }

    fn above(&self) -> String {
        self.path.iter().map(|(_, heading)| heading.as_str()).collect::<Vec<_>>().join(" > ")
    }

    fn take(&mut self, block: &Block) {
        let size = count(&block.text);
        if size > if block.solid { SOLID_LIMIT } else { LIMIT } {
            self.flush();
            let pieces = if block.solid { by_lines(&block.text) } else { by_sentences(&block.text) };
            let heading = self.above();
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
            self.done.push(Chunk { heading: self.above(), content });
        }
    }
}

fn is_table(block: &str) -> bool {
    block.lines().count() > 1 && block.lines().all(|line| line.trim_start().starts_with('|'))
}

fn count(text: &str) -> usize {
    text.chars().count()
}

/// Pieces of whole lines.
fn by_lines(text: &str) -> Vec<String> {
    gather(text.lines().flat_map(|line| hard_cut(line, PIECE)), "\n", PIECE, false)
}

/// Pieces of whole sentences, about equally long: a few sentences left over would be found by nothing. The last of one is the first
/// of the next.
fn by_sentences(text: &str) -> Vec<String> {
    let size = count(text);
    let even = (size.div_ceil(size.div_ceil(PIECE)) + SENTENCE).min(PIECE);
    gather(sentences(text).into_iter().flat_map(|sentence| hard_cut(sentence, PIECE)), " ", even, true)
}

fn gather<'a>(parts: impl Iterator<Item = &'a str>, between: &str, target: usize, overlap: bool) -> Vec<String> {
    let mut done: Vec<String> = Vec::new();
    let (mut piece, mut last) = (String::new(), "");
    for part in parts {
        if !piece.is_empty() && count(&piece) + count(part) > target {
            done.push(std::mem::take(&mut piece));
            // A sentence that fills a chunk would only be said twice.
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

/// Ends at `.`, `!`, `?`, `…` or `:` before a blank.
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

/// What has no end of its own is cut at blanks, or anywhere.
fn hard_cut(text: &str, most: usize) -> Vec<&str> {
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
