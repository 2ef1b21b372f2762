//! The parts of German compounds in an index. Which parts a word has depends on the vocabulary of the whole collection, so they are compared
//! with it again after many changes: a few words at a time, so that no search waits for it.

use super::index::{Index, PART};

/// The German words whose parts have changed, with their new parts.
pub(super) type ChangedParts = Vec<(u32, Vec<String>)>;

impl Index {
    /// Whether so many chunks have changed that the parts should be compared with the vocabulary again.
    pub fn parts_are_due(&self) -> bool {
        self.changes > 0 && (self.changes * 10 > self.live || self.changes >= 1_000)
    }

    /// Compares the parts of `most` words from this position with the vocabulary. Returns the words to change, and the next position.
    pub(super) fn compare_parts(&self, from: usize, most: usize) -> (ChangedParts, Option<usize>) {
        let until = self.german.len().min(from.saturating_add(most));
        let mut changed = Vec::new();
        for form in self.german.get(from..until).unwrap_or_default() {
            let known = &self.forms[*form as usize];
            let Some(flat) = known.flat.as_deref().filter(|_| !known.postings.is_empty()) else { continue };
            let parts = self.vocabulary.parts(flat, &self.stems);
            let numbers = parts.iter().map(|part| self.find_feature(PART, part));
            if !numbers.eq(known.parts.iter().map(|part| Some(*part))) {
                changed.push((*form, parts));
            }
        }
        (changed, (until < self.german.len()).then_some(until))
    }

    /// Sets the parts of a word, and corrects the numbers of chunks that contain them.
    pub(super) fn set_parts(&mut self, form: u32, parts: &[String]) {
        let parts: Vec<u32> = parts.iter().map(|part| self.feature(PART, part)).collect();
        let old = std::mem::take(&mut self.forms[form as usize].parts);
        let changes: Vec<(u32, i32)> = {
            let gone = old.iter().filter(|part| !parts.contains(part)).map(|part| (*part, -1));
            let new = parts.iter().filter(|part| !old.contains(part)).map(|part| (*part, 1));
            gone.chain(new).collect()
        };
        for (part, change) in changes {
            // A chunk counts once, so only chunks in which no other word has the part count.
            let alone = self.forms[form as usize].postings.iter().filter(|posting| !self.has_part(posting.number(), part)).count();
            let feature = &mut self.features[part as usize];
            feature.chunks = feature.chunks.saturating_add_signed(change * i32::try_from(alone).unwrap_or(i32::MAX));
            match change {
                1 => feature.forms.push(form),
                _ => feature.forms.retain(|other| *other != form),
            }
        }
        self.forms[form as usize].parts = parts;
    }

    fn has_part(&self, slot: usize, part: u32) -> bool {
        self.slots[slot].forms.iter().any(|form| self.forms[form.number()].parts.contains(&part))
    }

    /// Starts a comparison of all parts: later changes count for the next one, and new words are split at once from now on.
    pub(super) fn start_comparison(&mut self) {
        self.changes = 0;
        self.splits_new_words = true;
    }

    /// Compares all parts at once.
    pub fn update_compounds(&mut self) {
        self.start_comparison();
        let mut next = Some(0);
        while let Some(from) = next {
            let (changed, following) = self.compare_parts(from, 4_096);
            for (form, parts) in changed {
                self.set_parts(form, &parts);
            }
            next = following;
        }
    }
}
