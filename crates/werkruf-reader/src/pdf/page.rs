//! Turns the drawing operations of a page into lines of text.
//!
//! A PDF has no words and lines, only letters at positions. Letters are read in drawing order, which is the order of writing.
//! The position of the next letter decides whether it continues the word, continues the line or begins a new line.

use hayro_interpret::font::{Glyph, GlyphRun, PositionedGlyph};
use hayro_interpret::hayro_cmap::BfString;
use hayro_interpret::kurbo::{Affine, BezPath, Point, Vec2};
use hayro_interpret::{BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, SoftMask};

/// Glyph coordinates are in thousandths of the font size.
const UNITS: f64 = 1_000.0;
/// Multiples of the font size: how far a letter's baseline may be off the line's (for footnote numbers), how far back a letter
/// may start (for accents and overprints), and which gap begins a new word.
const LIFT: f64 = 0.4;
const BACK: f64 = 0.9;
const BLANK: f64 = 0.15;
/// A wider gap separates the cells of a table, or columns. They are lines of their own, so that each has its place.
const CELL: f64 = 2.0;
/// The same letter drawn again within this distance is one letter in fake bold.
const TWICE: f64 = 0.15;

/// A line of text. `left` and `right` are measured along its direction, `baseline` downwards across it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) baseline: f64,
    pub(super) size: f64,
    pub(super) direction: Vec2,
}

/// A letter at its position.
#[derive(Debug, Clone, PartialEq)]
struct Letter {
    text: String,
    left: f64,
    right: f64,
    baseline: f64,
    size: f64,
    direction: Vec2,
}

/// A drawing device that collects text.
#[derive(Debug, Default)]
pub(super) struct PageText {
    lines: Vec<Line>,
    /// The letters of the last run, to detect fake bold.
    last: Vec<Letter>,
    drawn: usize,
    decoded: usize,
}

impl PageText {
    /// How many letters were drawn.
    pub(super) const fn drawn(&self) -> usize {
        self.drawn
    }

    /// How many of the drawn letters have a known character.
    pub(super) const fn decoded(&self) -> usize {
        self.decoded
    }

    /// The lines of the page in drawing order.
    pub(super) fn into_lines(self) -> Vec<Line> {
        let mut lines = self.lines;
        for line in &mut lines {
            line.text.truncate(line.text.trim_end().len());
        }
        lines.retain(|line| !line.text.is_empty());
        lines
    }

    fn put(&mut self, letter: &Letter) {
        let blank = letter.text.chars().all(char::is_whitespace);
        if let Some(line) = self.lines.last_mut().filter(|line| line.continues_with(letter)) {
            let gap = letter.left - line.right > BLANK * letter.size.min(line.size);
            if (gap || blank) && !line.text.ends_with(' ') {
                line.text.push(' ');
            }
            if !blank {
                line.text.push_str(&letter.text);
                // The number of a footnote must not reduce the font size of its line.
                line.size = line.size.max(letter.size);
            }
            line.right = line.right.max(letter.right);
        } else if !blank {
            let Letter { text, left, right, baseline, size, direction } = letter.clone();
            self.lines.push(Line { text, left, right, baseline, size, direction });
        }
    }
}

impl Line {
    fn continues_with(&self, letter: &Letter) -> bool {
        let size = self.size.max(letter.size);
        self.direction.dot(letter.direction) > 0.99
            && (letter.baseline - self.baseline).abs() <= LIFT * size
            && (self.right - BACK * size..=self.right + CELL * size).contains(&letter.left)
    }
}

impl Letter {
    /// The letter's position; `None` if the numbers are not finite.
    fn at(glyph: &PositionedGlyph<'_>, transform: Affine, text: String) -> Option<Self> {
        let placed = transform * glyph.transform();
        let (origin, along) = (placed * Point::ORIGIN, placed * Point::new(UNITS, 0.0) - placed * Point::ORIGIN);
        let size = (placed * Point::new(0.0, UNITS) - origin).hypot();
        let advance = match &**glyph {
            Glyph::Outline(outline) => outline.advance_width(),
            Glyph::Type3(drawn) => drawn.advance_width(),
        };
        // Half of the height for a letter without a width.
        let width = advance.map_or(0.5 * along.hypot(), |width| f64::from(width) / UNITS * along.hypot());
        let direction = along.normalize();
        let (left, baseline) = (origin.to_vec2().dot(direction), Vec2::new(-direction.y, direction.x).dot(origin.to_vec2()));
        let valid = [left, baseline, width, size].iter().all(|number| number.is_finite()) && size > 0.0;
        valid.then(|| Self { text, left, right: left + width.max(0.0), baseline, size, direction })
    }

    fn is_same_letter(&self, other: &Self) -> bool {
        let near = TWICE * self.size;
        self.text == other.text && (self.left - other.left).abs() < near && (self.baseline - other.baseline).abs() < near
    }
}

impl<'a> Device<'a> for PageText {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, 'a>, props: DrawProps<'a>, _: &DrawMode) {
        let mut letters = Vec::with_capacity(run.glyphs().len());
        for glyph in run.glyphs() {
            self.drawn += 1;
            let Some(text) = glyph.as_unicode().map(plain_characters) else { continue };
            self.decoded += 1;
            letters.extend(Letter::at(glyph, props.transform, text));
        }
        let repeated = letters.len() == self.last.len() && letters.iter().zip(&self.last).all(|(new, old)| new.is_same_letter(old));
        if !repeated {
            letters.iter().for_each(|letter| self.put(letter));
            self.last = letters;
        }
    }

    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'a>, _: &DrawMode) {}
    fn push_clip_path(&mut self, _: &ClipPath) {}
    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'a>>, _: BlendMode) {}
    fn draw_image(&mut self, _: Image<'a, '_>, _: ImageDrawProps<'a>) {}
    fn pop_clip(&mut self) {}
    fn pop_transparency_group(&mut self) {}
}

/// The characters as typed: without ligatures and invisible characters.
fn plain_characters(letters: BfString) -> String {
    let mut text = String::new();
    let mut push = |letter: char| match letter {
        'ﬀ' => text.push_str("ff"),
        'ﬁ' => text.push_str("fi"),
        'ﬂ' => text.push_str("fl"),
        'ﬃ' => text.push_str("ffi"),
        'ﬄ' => text.push_str("ffl"),
        'ﬅ' | 'ﬆ' => text.push_str("st"),
        // The soft hyphen is drawn only where a line ends at it.
        '\u{ad}' | '\u{2010}' => text.push('-'),
        letter if letter.is_whitespace() => text.push(' '),
        letter if letter.is_control() || letter == '\u{fffd}' => {}
        letter => text.push(letter),
    };
    match letters {
        BfString::Char(letter) => push(letter),
        BfString::String(letters) => letters.chars().for_each(&mut push),
    }
    text
}
