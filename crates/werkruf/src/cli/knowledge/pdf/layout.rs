//! Lines as paragraphs.
//!
//! What belongs together is seen by what a reader sees it by: distance, size of the letters, indents, short last lines. A break too many
//! costs little, because short paragraphs are put into one chunk again; a break too few glues strangers together.

use super::joining::join;
use super::page::Line;

/// Letters of another size begin another paragraph; in shares of the smaller.
const SIZE: f64 = 1.15;
/// A larger step than the page's usual one.
const STEP: f64 = 1.3;
/// In sizes of the letter.
const SAME_ROW: f64 = 0.4;
const INDENT: f64 = 0.8;
const DEEPEST_INDENT: f64 = 6.0;
const WIDEST_STEP: f64 = 2.2;
const USUAL_STEP: f64 = 1.25;
/// A line of less than this share of the page's width was ended on purpose.
const SHORT: f64 = 0.65;
const FULL: f64 = 0.9;

/// How a line stands to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It goes on.
    Goes,
    /// A line of its own in the same paragraph.
    Line,
    Paragraph,
}

/// What is usual on a page.
struct Usual {
    /// From line to line, in sizes of the letter.
    step: f64,
    width: f64,
}

/// The paragraphs of a page. Inside one, a line break is one that was meant.
pub(super) fn paragraphs(lines: &[Line]) -> Vec<String> {
    let usual = Usual::of(lines);
    let mut done: Vec<String> = Vec::new();
    let mut before: Option<&Line> = None;
    for line in lines {
        match (before.map(|before| next(before, line, &usual)), done.last_mut()) {
            (Some(Next::Goes), Some(paragraph)) => join(paragraph, &line.text),
            (Some(Next::Line), Some(paragraph)) => {
                paragraph.push('\n');
                paragraph.push_str(&line.text);
            }
            _ => done.push(line.text.clone()),
        }
        before = Some(line);
    }
    done
}

fn next(before: &Line, line: &Line, usual: &Usual) -> Next {
    let size = before.size.max(line.size);
    if before.toward.dot(line.toward) < 0.99 || size > SIZE * before.size.min(line.size) {
        return Next::Paragraph;
    }
    let step = line.foot - before.foot;
    if step.abs() <= SAME_ROW * size {
        // The cells of a row, in any order.
        return Next::Goes;
    }
    let ended = before.text.ends_with(['.', '!', '?', ':', '…', ')', '"', '”', '“', '»']);
    if step < 0.0 {
        // A new column; the sentence may go on in it.
        let goes_on = !ended && line.text.starts_with(char::is_lowercase);
        return if goes_on { Next::Goes } else { Next::Paragraph };
    }
    if step > STEP * usual.step * size {
        return Next::Paragraph;
    }
    if is_item(&line.text) {
        return Next::Line;
    }
    let hyphen = before.text.ends_with('-');
    let short = before.right - before.left < usual.width * SHORT;
    let indent = line.left - before.left;
    if ended && (before.right - before.left < usual.width * FULL || (INDENT * size..DEEPEST_INDENT * size).contains(&indent)) {
        return Next::Paragraph;
    }
    if short && !hyphen { Next::Line } else { Next::Goes }
}

impl Usual {
    fn of(lines: &[Line]) -> Self {
        let steps = lines.windows(2).filter_map(|two| {
            let step = (two[1].foot - two[0].foot) / two[0].size.max(two[1].size);
            (SAME_ROW..WIDEST_STEP).contains(&step).then_some(step)
        });
        let step = at_share(steps.collect(), 0.5).unwrap_or(USUAL_STEP);
        // Not the widest: one line may be off the page.
        let width = at_share(lines.iter().map(|line| line.right - line.left).collect(), 0.9).unwrap_or(0.0);
        Self { step, width }
    }
}

/// The number that so many of them lie below.
fn at_share(mut numbers: Vec<f64>, share: f64) -> Option<f64> {
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
