//! Groups lines into paragraphs.
//!
//! The criteria are the line distance, the font size, indents and short last lines. One break too many costs little, because
//! short paragraphs end up in one chunk anyway; a missing break joins unrelated text.

use super::joining::join;
use super::page::Line;

/// A larger ratio of font sizes begins a new paragraph.
const SIZE: f64 = 1.15;
/// A larger ratio to the page's usual line distance begins a new paragraph.
const STEP: f64 = 1.3;
// The following are multiples of the font size.
const SAME_ROW: f64 = 0.4;
const CELL: f64 = 1.0;
const INDENT: f64 = 0.8;
const DEEPEST_INDENT: f64 = 6.0;
const WIDEST_STEP: f64 = 2.2;
const USUAL_STEP: f64 = 1.25;
/// A line shorter than this share of the page's width was ended on purpose.
const SHORT: f64 = 0.65;
const FULL: f64 = 0.9;

/// How a line relates to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// The line continues the previous one.
    Continues,
    /// The next cell in a row of a table.
    Cell,
    /// A new line in the same paragraph.
    Line,
    Paragraph,
}

/// The typical measures of a page.
pub(super) struct Usual {
    /// The distance between lines, as a multiple of the font size.
    pub(super) step: f64,
    width: f64,
}

/// The paragraphs of a page. A line break inside a paragraph is an intended one.
pub(super) fn paragraphs(lines: &[Line]) -> Vec<String> {
    let usual = Usual::of(lines);
    let mut done: Vec<String> = Vec::new();
    let (mut before, mut is_row): (Option<&Line>, bool) = (None, false);
    for line in lines {
        let mut relation = before.map(|before| relation(before, line, &usual));
        let same_row = before.is_some_and(|before| is_same_row(before, line));
        if is_row && !same_row && relation == Some(Relation::Continues) {
            // A row of a table ends, whatever its last cell looks like.
            relation = Some(Relation::Line);
        }
        is_row = relation == Some(Relation::Cell) || (is_row && same_row);
        match (relation, done.last_mut()) {
            (Some(Relation::Continues), Some(paragraph)) => join(paragraph, &line.text),
            (Some(Relation::Cell | Relation::Line), Some(paragraph)) => {
                paragraph.push(if relation == Some(Relation::Cell) { ' ' } else { '\n' });
                paragraph.push_str(&line.text);
            }
            _ => done.push(line.text.clone()),
        }
        before = Some(line);
    }
    done
}

fn relation(before: &Line, line: &Line, usual: &Usual) -> Relation {
    let size = before.size.max(line.size);
    if before.direction.dot(line.direction) < 0.99 || size > SIZE * before.size.min(line.size) {
        return Relation::Paragraph;
    }
    let step = line.baseline - before.baseline;
    if is_same_row(before, line) {
        // The cells of a row may come in any order.
        let is_cell = line.left > before.right + CELL * size || line.right < before.left;
        return if is_cell { Relation::Cell } else { Relation::Continues };
    }
    let ended = before.text.ends_with(['.', '!', '?', ':', '…', ')', '"', '”', '“', '»']);
    if step < 0.0 {
        // A new column; the sentence may continue in it.
        let continues = !ended && line.text.starts_with(char::is_lowercase);
        return if continues { Relation::Continues } else { Relation::Paragraph };
    }
    if step > STEP * usual.step * size {
        return Relation::Paragraph;
    }
    if is_item(&line.text) {
        return Relation::Line;
    }
    let hyphen = before.text.ends_with('-');
    let short = before.right - before.left < usual.width * SHORT;
    let indent = line.left - before.left;
    if ended && (before.right - before.left < usual.width * FULL || (INDENT * size..DEEPEST_INDENT * size).contains(&indent)) {
        return Relation::Paragraph;
    }
    let begins = |line: &Line| line.text.starts_with(|letter: char| letter.is_ascii_digit());
    // Two lines that begin or end with a number are rows of a list rather than a sentence.
    let is_row = (begins(before) && begins(line)) || (ends_with_number(&before.text) && ends_with_number(&line.text));
    if is_row || (short && !hyphen) { Relation::Line } else { Relation::Continues }
}

fn is_same_row(before: &Line, line: &Line) -> bool {
    (line.baseline - before.baseline).abs() <= SAME_ROW * before.size.max(line.size)
}

/// Whether a text ends with a number or an amount.
fn ends_with_number(text: &str) -> bool {
    let amount = text.trim_end_matches(['€', '$', '%', '-']).trim_end_matches("EUR").trim_end();
    amount.ends_with(|letter: char| letter.is_ascii_digit())
}

impl Usual {
    pub(super) fn of(lines: &[Line]) -> Self {
        let steps = lines.windows(2).filter_map(|two| {
            let step = (two[1].baseline - two[0].baseline) / two[0].size.max(two[1].size);
            (SAME_ROW..WIDEST_STEP).contains(&step).then_some(step)
        });
        let step = quantile(steps.collect(), 0.5).unwrap_or(USUAL_STEP);
        // The 90th percentile instead of the maximum: a single line may extend beyond the page.
        let width = quantile(lines.iter().map(|line| line.right - line.left).collect(), 0.9).unwrap_or(0.0);
        Self { step, width }
    }
}

/// The quantile of these numbers.
fn quantile(mut numbers: Vec<f64>, share: f64) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().checked_sub(1)?;
    numbers.get((last as f64 * share).round() as usize).copied()
}

/// `• Gold`, `- Gold`, `3. Gold`, `b) Gold`.
fn is_item(text: &str) -> bool {
    let Some((mark, _)) = text.split_once(' ') else { return false };
    let bullet = matches!(mark, "•" | "‣" | "◦" | "▪" | "■" | "●" | "○" | "–" | "-" | "*" | "·" | "➢" | "✓" | "\u{f0b7}" | "\u{f0a7}");
    let counted = mark.strip_suffix(['.', ')']).is_some_and(|number| {
        (1..=3).contains(&number.len())
            && (number.bytes().all(|digit| digit.is_ascii_digit()) || (number.len() == 1 && mark.ends_with(')')))
    });
    bullet || counted
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
