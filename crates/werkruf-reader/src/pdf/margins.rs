//! Finds headers and footers, and keeps each of them once: on every page they would match too many searches.
//!
//! A header or footer stands at the same distance from the upper or lower edge on most pages, with the same text or a page number, and
//! with a gap between it and the body. Text that meets only some of these criteria stays.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::layout::Usual;
use super::page::Line;

/// A header or footer stands on at least this many pages, and on at least half of all pages.
const MIN_PAGES: usize = 3;
/// At most this many rows are a header or a footer, within this share of the page.
const MAX_ROWS: usize = 4;
const MARGIN: f64 = 0.16;
/// A row with more lines is part of a table.
const MAX_CELLS: usize = 12;
/// In points: the same place.
const SAME_PLACE: f64 = 2.5;
/// Multiples of the usual distance of lines: the smallest gap to the body, and how much two equal gaps differ.
const GAP: f64 = 1.5;
const EQUAL_GAP: f64 = 0.05;
/// Words beside a page number, in lower case.
const PAGE_WORDS: [&str; 13] = ["seite", "s", "page", "p", "pg", "página", "pagina", "pág", "pag", "von", "of", "de", "blatt"];

/// A page before its lines become paragraphs.
pub(super) struct PageLines {
    pub(super) lines: Vec<Line>,
    pub(super) height: f64,
}

/// An edge of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Edge {
    Top,
    Bottom,
}

/// Lines with the same baseline: their indexes, from the edge inwards.
struct Row {
    lines: Vec<usize>,
    distance: f64,
    size: f64,
}

/// A line that may be part of a header or footer.
struct Candidate {
    page: usize,
    line: usize,
    distance: f64,
    left: f64,
    right: f64,
    text: String,
}

/// Removes headers and footers from all pages but the first that has them.
pub(super) fn keep_margins_once(pages: &mut [PageLines]) {
    let enough = MIN_PAGES.max(pages.len().div_ceil(2));
    if pages.len() < MIN_PAGES {
        return;
    }
    let mut removed: HashSet<(usize, usize)> = HashSet::new();
    for edge in [Edge::Top, Edge::Bottom] {
        let rows: Vec<Vec<Row>> = pages.iter().map(|page| rows(page, edge)).collect();
        let repeats = repeats(pages, &rows, enough);
        let mut kept: HashSet<usize> = HashSet::new();
        for (at, (page, rows)) in pages.iter().zip(&rows).enumerate() {
            for row in &rows[..margin_rows(page, rows, &repeats, at)] {
                let groups: Vec<usize> = row.lines.iter().filter_map(|line| repeats.get(&(at, *line)).copied()).collect();
                // The first occurrence of each is kept.
                if groups.iter().all(|group| kept.contains(group)) {
                    removed.extend(row.lines.iter().map(|line| (at, *line)));
                }
                kept.extend(groups);
            }
        }
    }
    for (at, page) in pages.iter_mut().enumerate() {
        let mut nth = 0;
        page.lines.retain(|_| {
            nth += 1;
            !removed.contains(&(at, nth - 1))
        });
    }
}

/// The rows of a page, from an edge inwards. Only upright text has a distance from an edge.
fn rows(page: &PageLines, edge: Edge) -> Vec<Row> {
    let distance = |line: &Line| if edge == Edge::Top { line.baseline } else { page.height - line.baseline };
    let mut order: Vec<usize> = (0..page.lines.len()).filter(|at| page.lines[*at].direction.x > 0.99).collect();
    order.sort_by(|a, b| distance(&page.lines[*a]).total_cmp(&distance(&page.lines[*b])));
    let mut rows: Vec<Row> = Vec::new();
    for at in order {
        let line = &page.lines[at];
        match rows.last_mut().filter(|row| (distance(line) - row.distance).abs() <= 0.4 * line.size.min(row.size)) {
            Some(row) => {
                row.lines.push(at);
                row.size = row.size.max(line.size);
            }
            None => rows.push(Row { lines: vec![at], distance: distance(line), size: line.size }),
        }
    }
    rows
}

/// How many rows from the edge are a header or footer on this page: rows that all repeat, followed by a gap unlike those of the body.
fn margin_rows(page: &PageLines, rows: &[Row], repeats: &HashMap<(usize, usize), usize>, at: usize) -> usize {
    let is_margin = |row: &&Row| row.distance < page.height * MARGIN && row.lines.iter().all(|line| repeats.contains_key(&(at, *line)));
    let repeating = rows.iter().take(MAX_ROWS).take_while(is_margin).count();
    let step = Usual::of(&page.lines).step;
    let gap = |count: usize| match (rows.get(count.wrapping_sub(1)), rows.get(count)) {
        (Some(row), Some(next)) => next.distance - row.distance,
        // Nothing else is on the page, so these rows may be its body.
        _ => 0.0,
    };
    let fits = |count: &usize| {
        let size = rows[*count - 1].size.max(rows.get(*count).map_or(0.0, |next| next.size));
        let width = gap(*count);
        let is_usual = |other: usize| other != *count && (gap(other) - width).abs() <= EQUAL_GAP * step * size;
        // The same gap elsewhere on the page separates parts of the body, so these rows may be another part.
        width > GAP * step * size && !(1..rows.len()).any(is_usual)
    };
    (1..=repeating).rev().find(fits).unwrap_or(0)
}

/// The lines that stand on enough pages, each with the number of its group.
fn repeats(pages: &[PageLines], rows: &[Vec<Row>], enough: usize) -> HashMap<(usize, usize), usize> {
    let mut by_pattern: HashMap<String, Vec<Candidate>> = HashMap::new();
    for (page, rows) in rows.iter().enumerate() {
        for row in rows.iter().take(MAX_ROWS).take_while(|row| row.distance < pages[page].height * MARGIN) {
            for line in row.lines.iter().filter(|_| row.lines.len() <= MAX_CELLS) {
                let Line { text, left, right, .. } = &pages[page].lines[*line];
                let candidate = Candidate { page, line: *line, distance: row.distance, left: *left, right: *right, text: text.clone() };
                by_pattern.entry(pattern(text)).or_default().push(candidate);
            }
        }
    }
    let (mut found, mut number) = (HashMap::new(), 0);
    for candidates in by_pattern.into_values() {
        for group in same_place(candidates) {
            for repeated in [same_text(&group, enough), page_numbers(&group, enough)].into_iter().flatten() {
                found.extend(repeated.into_iter().map(|candidate| ((candidate.page, candidate.line), number)));
                number += 1;
            }
        }
    }
    found
}

/// The text with `#` for each number.
fn pattern(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            pattern.push(letter);
        } else if !pattern.ends_with('#') {
            pattern.push('#');
        }
    }
    pattern
}

/// Groups lines by their distance from the edge, and by their left end, right end or middle.
fn same_place(mut candidates: Vec<Candidate>) -> Vec<Vec<Candidate>> {
    candidates.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.page.cmp(&b.page)));
    let mut groups: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates {
        let near = |a: f64, b: f64| (a - b).abs() <= SAME_PLACE;
        let is_there = |group: &&mut Vec<Candidate>| {
            let first = &group[0];
            let (middle, first_middle) = ((candidate.left + candidate.right) / 2.0, (first.left + first.right) / 2.0);
            near(candidate.distance, first.distance)
                && (near(candidate.left, first.left) || near(candidate.right, first.right) || near(middle, first_middle))
        };
        match groups.iter_mut().find(is_there) {
            Some(group) => group.push(candidate),
            None => groups.push(vec![candidate]),
        }
    }
    groups
}

fn on_enough_pages(group: &[&Candidate], enough: usize) -> bool {
    group.iter().map(|candidate| candidate.page).collect::<HashSet<_>>().len() >= enough
}

/// The largest part of a group with one text.
fn same_text(group: &[Candidate], enough: usize) -> Option<Vec<&Candidate>> {
    let mut by_text: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    group.iter().for_each(|candidate| by_text.entry(&candidate.text).or_default().push(candidate));
    by_text.into_values().find(|same| on_enough_pages(same, enough))
}

/// The part of a group in which one number counts the pages and everything else is the same.
fn page_numbers(group: &[Candidate], enough: usize) -> Option<Vec<&Candidate>> {
    let mut by_count: BTreeMap<(usize, i64, Vec<i64>), Vec<&Candidate>> = BTreeMap::new();
    for candidate in group {
        let numbers = numbers(&candidate.text)?;
        let page = i64::try_from(candidate.page).ok()?;
        for at in 0..numbers.len() {
            let mut others = numbers.clone();
            let offset = others.remove(at) - page;
            by_count.entry((at, offset, others)).or_default().push(candidate);
        }
    }
    let mut counting = by_count.into_iter().filter(|(_, same)| on_enough_pages(same, enough));
    let ((at, ..), same) = counting.next()?;
    is_page_number(&same[0].text, at).then_some(same)
}

fn numbers(text: &str) -> Option<Vec<i64>> {
    text.split(|letter: char| !letter.is_ascii_digit()).filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
}

/// Whether the number stands alone, or a word such as "Seite" is beside it. "Line 3" may be the title of a page.
fn is_page_number(text: &str, at: usize) -> bool {
    let lower = text.to_lowercase();
    let is_word = |word: &&str| !word.is_empty();
    let mut words = lower.split(|letter: char| !letter.is_alphanumeric()).filter(is_word);
    if words.clone().all(|word| word.bytes().all(|digit| digit.is_ascii_digit()) || PAGE_WORDS.contains(&word)) {
        return true;
    }
    let mut before = "";
    let mut nth = 0;
    words.any(|word| {
        let is_number = word.bytes().all(|digit| digit.is_ascii_digit());
        let found = is_number && nth == at && PAGE_WORDS.contains(&before);
        nth += usize::from(is_number);
        before = word;
        found
    })
}

#[cfg(test)]
#[path = "margins_tests.rs"]
mod tests;
