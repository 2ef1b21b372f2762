//! Splits German compounds with the vocabulary of the collection, so that "Prämienmeilen" is found by "Meilen".

use super::language::Language;
use super::stem::Stems;
use super::words::{DigestMap, digest, is_alphabetic, letters};

const MARK: u8 = b'v';
/// The minimum length of a part, and of a word that is split.
const MIN_PART: usize = 4;
const MIN_WORD: usize = 8;
const TAIL_ENDINGS: [&str; 6] = ["en", "e", "n", "s", "er", "es"];
const HEAD_LINKS: [&str; 6] = ["s", "n", "en", "es", "er", "e"];
const HEAD_MISSING: [&str; 3] = ["e", "en", "n"];

/// The number of chunks that contain each word, by its flat spelling.
#[derive(Debug, Default)]
pub(super) struct Vocabulary(DigestMap<u32>);

impl Vocabulary {
    /// Counts a chunk with a word that may be a part of compounds.
    pub(super) fn add(&mut self, flat: &str) {
        *self.0.entry(digest(MARK, flat)).or_default() += 1;
    }

    /// Takes back what [`Self::add`] counted.
    pub(super) fn remove(&mut self, flat: &str) {
        if let std::collections::hash_map::Entry::Occupied(mut count) = self.0.entry(digest(MARK, flat)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Whether a word can be a part of compounds.
    pub(super) fn includes(word: &str) -> bool {
        letters(word) >= MIN_PART && is_alphabetic(word)
    }

    fn count(&self, flat: &str) -> u32 {
        self.0.get(&digest(MARK, flat)).copied().unwrap_or(0)
    }

    /// The highest count among the word and its shorter forms.
    fn best(&self, word: &str, endings: &[&str]) -> u32 {
        let shorter = endings.iter().filter_map(|ending| word.strip_suffix(ending)).filter(|rest| letters(rest) >= MIN_PART);
        shorter.map(|rest| self.count(rest)).fold(self.count(word), u32::max)
    }

    /// The two parts of a word in flat spelling with the highest weight.
    fn split<'a>(&self, flat: &'a str) -> Option<(&'a str, &'a str)> {
        let count = letters(flat);
        if count < MIN_WORD || !is_alphabetic(flat) {
            return None;
        }
        let mut best: Option<(u64, (&str, &str))> = None;
        for (cut, _) in flat.char_indices().skip(MIN_PART).take((count + 1).saturating_sub(2 * MIN_PART)) {
            let (head, tail) = flat.split_at(cut);
            let tails = match self.count(tail) {
                0 => self.best(tail, &TAIL_ENDINGS),
                found => found,
            };
            if tails == 0 {
                continue;
            }
            let longer = HEAD_MISSING.iter().map(|more| self.count(&format!("{head}{more}"))).max().unwrap_or(0);
            let weight = u64::from(self.best(head, &HEAD_LINKS).max(longer)) * u64::from(tails);
            if weight > best.map_or(0, |(weight, _)| weight) {
                best = Some((weight, (head, tail)));
            }
        }
        best.map(|(_, parts)| parts)
    }

    /// The stems of a word's parts, each once, or of the word itself if it is not a compound.
    pub(super) fn parts(&self, flat: &str, stems: &Stems) -> Vec<String> {
        let Some((head, tail)) = self.split(flat) else { return vec![stems.of(flat, Language::De)] };
        let mut parts: Vec<String> = [head, tail].into_iter().map(|part| stems.of(self.without_link(part), Language::De)).collect();
        parts.dedup();
        parts
    }

    fn without_link<'a>(&self, part: &'a str) -> &'a str {
        ["s", "n"].iter().filter_map(|link| part.strip_suffix(link)).find(|rest| self.count(rest) > 0).unwrap_or(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::flat;

    #[test]
    fn parts_follow_the_vocabulary() {
        let (mut vocabulary, stems) = (Vocabulary::default(), Stems::default());
        let parts = |vocabulary: &Vocabulary, word: &str| vocabulary.parts(&flat(word), &stems);
        assert_eq!(parts(&vocabulary, "prämienmeilen").len(), 1, "nothing is known yet");
        for word in ["prämie", "meilen", "gepäck", "grenze"] {
            vocabulary.add(&flat(word));
        }
        let meilen = parts(&vocabulary, "meilen").remove(0);
        assert!(parts(&vocabulary, "prämienmeilen").contains(&meilen));
        assert_eq!(parts(&vocabulary, "gepäckgrenze").len(), 2);
        assert_eq!(parts(&vocabulary, "gepaeckgrenzen"), parts(&vocabulary, "gepäckgrenzen"));
        assert_eq!(parts(&vocabulary, "kurz").len(), 1);
    }
}
