//! Cuts a text into parts that WhatsApp accepts, at a paragraph, a line, a sentence or a word.

use unicode_segmentation::UnicodeSegmentation;

/// The longest text of one message, in UTF-16 units.
pub(super) const PART_UNITS: usize = 4096;

/// The parts of a text, in order, each of at most `limit` UTF-16 units. Only white space at the cuts is lost.
pub(super) fn split(text: &str, limit: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let window = window(rest, limit);
        let end = if window == rest.len() { window } else { place(rest, window) };
        let (part, after) = rest.split_at(end);
        parts.push(part.trim_end().to_owned());
        rest = after.trim_start();
    }
    parts
}

pub(super) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The text cut to this many UTF-16 units, with an ellipsis if something is missing.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    if units(text) <= limit {
        return text.to_owned();
    }
    let end = window(text, limit.saturating_sub(1));
    format!("{}…", text[..end].trim_end())
}

/// How many bytes fit, in whole characters as people see them. A single one that does not fit is cut between its code points.
fn window(text: &str, limit: usize) -> usize {
    let fits = |parts: &mut dyn Iterator<Item = &str>| {
        let (mut used, mut end) = (0, 0);
        for part in parts {
            used += units(part);
            if used > limit {
                break;
            }
            end += part.len();
        }
        end
    };
    match fits(&mut text.graphemes(true)) {
        0 => match fits(&mut text.split("").filter(|part| !part.is_empty())) {
            // A limit of less than one code point: the text must still come to its end.
            0 => text.chars().next().map_or(0, char::len_utf8),
            end => end,
        },
        end => end,
    }
}

/// The best place to cut before `window`: the last paragraph, line, sentence or word, unless the part would be shorter than half of it.
fn place(text: &str, window: usize) -> usize {
    let inside = &text[..window];
    let enough = window / 2;
    let after = |mark: &str| inside.rfind(mark).map(|at| at + mark.len()).filter(|end| *end > enough);
    let sentence = || [". ", "! ", "? ", "… ", "。"].iter().filter_map(|mark| after(mark)).max();
    // A word that ends exactly here is not cut.
    let whole_word = text[window..].starts_with(char::is_whitespace).then_some(window);
    let word = || inside.char_indices().filter(|(_, sign)| sign.is_whitespace()).map(|(at, sign)| at + sign.len_utf8()).next_back();
    after("\n\n")
        .or_else(|| after("\n"))
        .or_else(sentence)
        .or(whole_word)
        .or_else(|| word().filter(|end| *end > enough / 2))
        .unwrap_or(window)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn visible(text: &str) -> String {
        text.chars().filter(|sign| !sign.is_whitespace()).collect()
    }

    #[test]
    fn texts_are_cut_at_the_best_place() {
        assert_eq!(split("short", 10), ["short"]);
        assert_eq!(split(" \n ", 10), Vec::<String>::new());
        assert_eq!(split("First one.\n\nSecond one.", 16), ["First one.", "Second one."]);
        assert_eq!(split("line one\nline two is", 14), ["line one", "line two is"]);
        assert_eq!(split("One two. Three four", 14), ["One two.", "Three four"]);
        assert_eq!(split("alpha beta gamma", 11), ["alpha beta", "gamma"]);
        assert_eq!(split("alpha beta gamma", 10), ["alpha beta", "gamma"], "the word ends at the limit");
        assert_eq!(split("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    }

    #[test]
    fn a_character_stays_whole() {
        let family = "👨‍👩‍👧";
        assert_eq!(units(family), 8);
        assert_eq!(split(&family.repeat(3), 20), [family.repeat(2), family.to_owned()]);
        assert_eq!(split("aaa😀", 4), ["aaa", "😀"], "no surrogate pair is cut");
        assert_eq!(split(family, 4).concat(), family, "longer than a part: between code points");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
    }

    proptest! {
        #[test]
        fn nothing_but_white_space_is_lost(text in "(\\PC|[ \n.!?]|👨‍👩‍👧){0,300}", limit in 2..80_usize) {
            let parts = split(&text, limit);
            prop_assert!(parts.iter().all(|part| units(part) <= limit && !part.trim().is_empty()), "{parts:?}");
            prop_assert_eq!(visible(&parts.concat()), visible(&text));
        }
    }
}
