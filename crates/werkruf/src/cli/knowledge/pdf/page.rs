//! What is drawn on a page, as lines of text.
//!
//! A PDF knows neither words nor lines, only letters at places. They are taken in the order in which they are drawn, which is the order
//! they were written in; where the next letter stands says whether the word, the line or something else goes on.

use hayro_interpret::font::{Glyph, GlyphRun, PositionedGlyph};
use hayro_interpret::hayro_cmap::BfString;
use hayro_interpret::kurbo::{Affine, BezPath, Point, Vec2};
use hayro_interpret::{BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, SoftMask};

/// Letters are drawn in thousandths of the font's size.
const UNITS: f64 = 1_000.0;
/// In sizes of the letter: how far the foot of a letter may be off the line's (for footnote numbers), how far back it may reach (for accents
/// and overprints), and from which gap on it begins a new word.
const LIFT: f64 = 0.4;
const BACK: f64 = 0.9;
const BLANK: f64 = 0.15;
/// Letters drawn twice so close to one another are one, made bold.
const TWICE: f64 = 0.15;

/// A line of text. Places are measured along its direction, and across it downwards.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) foot: f64,
    pub(super) size: f64,
    pub(super) toward: Vec2,
}

/// A letter at its place.
#[derive(Debug, Clone, PartialEq)]
struct Letter {
    text: String,
    left: f64,
    right: f64,
    foot: f64,
    size: f64,
    toward: Vec2,
}

/// Listens to a page being drawn.
#[derive(Debug, Default)]
pub(super) struct PageText {
    lines: Vec<Line>,
    /// What was drawn last, to see when it is drawn again.
    last: Vec<Letter>,
    drawn: usize,
    named: usize,
}

impl PageText {
    /// How many letters were drawn.
    pub(super) const fn drawn(&self) -> usize {
        self.drawn
    }

    /// How many of them are known.
    pub(super) const fn named(&self) -> usize {
        self.named
    }

    /// What is written on the page, in the order it was written in.
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
        if let Some(line) = self.lines.last_mut().filter(|line| line.goes_on_with(letter)) {
            let gap = letter.left - line.right > BLANK * letter.size.min(line.size);
            if (gap || blank) && !line.text.ends_with(' ') {
                line.text.push(' ');
            }
            if !blank {
                line.text.push_str(&letter.text);
                // A footnote's number does not make its line small.
                line.size = line.size.max(letter.size);
            }
            line.right = line.right.max(letter.right);
        } else if !blank {
            let Letter { text, left, right, foot, size, toward } = letter.clone();
            self.lines.push(Line { text, left, right, foot, size, toward });
        }
    }
}

impl Line {
    fn goes_on_with(&self, letter: &Letter) -> bool {
        let size = self.size.max(letter.size);
        self.toward.dot(letter.toward) > 0.99 && (letter.foot - self.foot).abs() <= LIFT * size && letter.left >= self.right - BACK * size
    }
}

impl Letter {
    /// Where it stands; `None` where that is no place.
    fn at(glyph: &PositionedGlyph<'_>, transform: Affine, text: String) -> Option<Self> {
        let placed = transform * glyph.transform();
        let (origin, along) = (placed * Point::ORIGIN, placed * Point::new(UNITS, 0.0) - placed * Point::ORIGIN);
        let size = (placed * Point::new(0.0, UNITS) - origin).hypot();
        let advance = match &**glyph {
            Glyph::Outline(outline) => outline.advance_width(),
            Glyph::Type3(drawn) => drawn.advance_width(),
        };
        // Half of its height where a letter does not know its width.
        let width = advance.map_or(0.5 * along.hypot(), |width| f64::from(width) / UNITS * along.hypot());
        let toward = along.normalize();
        let (left, foot) = (origin.to_vec2().dot(toward), Vec2::new(-toward.y, toward.x).dot(origin.to_vec2()));
        let sound = [left, foot, width, size].iter().all(|number| number.is_finite()) && size > 0.0;
        sound.then(|| Self { text, left, right: left + width.max(0.0), foot, size, toward })
    }

    fn is_again(&self, other: &Self) -> bool {
        let near = TWICE * self.size;
        self.text == other.text && (self.left - other.left).abs() < near && (self.foot - other.foot).abs() < near
    }
}

impl<'a> Device<'a> for PageText {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, 'a>, props: DrawProps<'a>, _: &DrawMode) {
        let mut letters = Vec::with_capacity(run.glyphs().len());
        for glyph in run.glyphs() {
            self.drawn += 1;
            let Some(text) = glyph.as_unicode().map(spelled) else { continue };
            self.named += 1;
            letters.extend(Letter::at(glyph, props.transform, text));
        }
        let again = letters.len() == self.last.len() && letters.iter().zip(&self.last).all(|(new, old)| new.is_again(old));
        if !again {
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

/// The letters somebody would type: ligatures apart, nothing that cannot be seen.
fn spelled(letters: BfString) -> String {
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
