//! The index of one collection, in memory, built from its rows.
//!
//! A *form* is a word as written, in a language, with the chunks that contain it. A *feature* is what a query matches: a stem, a part of
//! a compound, an identifier, four letters in a row; it lists its forms. So every chunk is listed once per word, regardless of the
//! number of features, and the parts of compounds can be recomputed without changing the postings.
//!
//! Invariants: a slot is never reused; the chunk counts of features and of the vocabulary are exact, also after removals.

use super::analysis::{Analysis, IndexedChunk};
use super::compounds::Vocabulary;
use super::language::Language;
use super::stem::Stems;
use super::vectors::{QuantizedVector, Vectors};
use super::words::{DigestMap, digest, flat, folded, letters};

pub(super) const STEM: u8 = b's';
pub(super) const PART: u8 = b'~';
pub(super) const NAME: u8 = b'=';
pub(super) const GRAM: u8 = b'#';
/// The number of letters in a gram.
const GRAM_LETTERS: usize = 4;
/// A posting packs a slot and a count into 32 bits.
const COUNT_BITS: u32 = 8;
pub(super) const MAX_SLOTS: usize = 1 << (32 - COUNT_BITS);

/// A slot or form number and a count, packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Posting(u32);

impl Posting {
    fn new(number: u32, count: usize) -> Self {
        Self((number << COUNT_BITS) | u32::try_from(count.min(255)).unwrap_or(255))
    }

    pub(super) const fn number(self) -> usize {
        (self.0 >> COUNT_BITS) as usize
    }

    pub(super) const fn count(self) -> u32 {
        self.0 & 0xff
    }
}

#[derive(Debug)]
pub(super) struct Form {
    /// The flat spelling, if the word can be a part of compounds.
    pub(super) flat: Option<Box<str>>,
    /// The stem or identifier first, then the grams.
    features: Box<[u32]>,
    /// Only of German words, each part once.
    pub(super) parts: Vec<u32>,
    pub(super) postings: Vec<Posting>,
}

impl Form {
    pub(super) fn features(&self) -> impl Iterator<Item = u32> {
        self.features.iter().chain(&self.parts).copied()
    }

    fn grams(&self) -> usize {
        self.features.len() - 1
    }
}

#[derive(Debug, Default)]
pub(super) struct Feature {
    /// The number of chunks with this feature.
    pub(super) chunks: u32,
    pub(super) forms: Vec<u32>,
}

/// The data of one chunk.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The number of the chunk in the database.
    pub(super) number: i64,
    /// Breaks ties; equal in all databases.
    pub(super) document: std::sync::Arc<str>,
    pub(super) ordinal: u32,
    pub(super) live: bool,
    pub(super) words: u32,
    pub(super) grams: u32,
    /// The forms in the chunk, packed like postings.
    pub(super) forms: Box<[Posting]>,
}

/// The index of one collection.
#[derive(Debug, Default)]
pub struct Index {
    pub(super) stems: Stems,
    pub(super) forms: Vec<Form>,
    /// The forms of German words that can be compounds.
    pub(super) german: Vec<u32>,
    by_form: DigestMap<u32>,
    pub(super) features: Vec<Feature>,
    by_feature: DigestMap<u32>,
    pub(super) slots: Vec<Slot>,
    by_number: DigestMap<u32>,
    pub(super) vocabulary: Vocabulary,
    pub(super) vectors: Vectors,
    pub(super) live: usize,
    pub(super) words: u64,
    pub(super) grams: u64,
    /// Changes since the parts of compounds were last compared with the vocabulary.
    pub(super) changes: usize,
    /// Whether a new word is split when it arrives. Not while an index is built, because the vocabulary is not known yet.
    pub(super) splits_new_words: bool,
    /// The slot that last counted a feature, plus one; makes counting distinct features cheap.
    last_stamp: Vec<u32>,
    postings: usize,
}

impl Index {
    /// Adds a chunk; a chunk that is already indexed is not changed. False if the index is full.
    pub fn add(&mut self, chunk: &IndexedChunk) -> bool {
        self.insert(&Analysis::of(chunk))
    }

    /// Adds an analysed chunk, like [`Self::add`].
    pub(super) fn insert(&mut self, chunk: &Analysis) -> bool {
        if self.contains(chunk.number) {
            return true;
        }
        let Ok(slot) = u32::try_from(self.slots.len()) else { return false };
        if self.slots.len() >= MAX_SLOTS {
            return false;
        }
        let mut forms = Vec::with_capacity(64);
        for (word, key) in chunk.words() {
            forms.push(self.word(word, key, chunk.language));
        }
        let words = forms.len();
        let mut grams = 0;
        for form in &forms {
            grams += self.forms[*form as usize].grams();
        }
        for name in &chunk.names {
            forms.push(self.name(name));
        }
        forms.sort_unstable();
        let forms: Box<[Posting]> = forms.chunk_by(|a, b| a == b).map(|same| Posting::new(same[0], same.len())).collect();
        for form in &forms {
            let known = &mut self.forms[form.number()];
            known.postings.push(Posting::new(slot, form.count() as usize));
            if let Some(flat) = &known.flat {
                self.vocabulary.add(flat);
            }
        }
        let (words, grams) = (u32::try_from(words).unwrap_or(u32::MAX), u32::try_from(grams).unwrap_or(u32::MAX));
        self.count_features(&forms, slot, 1);
        self.postings += forms.len();
        self.words += u64::from(words);
        self.grams += u64::from(grams);
        self.live += 1;
        self.changes += 1;
        self.by_number.insert(chunk.number.cast_unsigned(), slot);
        let document = std::sync::Arc::clone(&chunk.document);
        self.slots.push(Slot { number: chunk.number, document, ordinal: chunk.ordinal, live: true, words, grams, forms });
        self.vectors.grow(self.slots.len());
        true
    }

    /// Whether a chunk is indexed.
    pub(super) fn contains(&self, number: i64) -> bool {
        self.by_number.contains_key(&number.cast_unsigned())
    }

    /// The document of an indexed chunk.
    pub(super) fn document_of(&self, number: i64) -> Option<&std::sync::Arc<str>> {
        Some(&self.slots[*self.by_number.get(&number.cast_unsigned())? as usize].document)
    }

    /// Removes a chunk with every posting and its vector.
    pub fn remove(&mut self, number: i64) {
        let Some(at) = self.by_number.remove(&number.cast_unsigned()) else { return };
        let slot = &mut self.slots[at as usize];
        slot.live = false;
        let forms = std::mem::take(&mut slot.forms);
        let (words, grams) = (slot.words, slot.grams);
        for form in &forms {
            let known = &mut self.forms[form.number()];
            if let Ok(position) = known.postings.binary_search_by_key(&(at as usize), |posting| posting.number()) {
                known.postings.remove(position);
            }
            if let Some(flat) = &known.flat {
                self.vocabulary.remove(flat);
            }
        }
        self.count_features(&forms, at, -1);
        self.vectors.clear(at as usize);
        self.postings -= forms.len();
        self.words -= u64::from(words);
        self.grams -= u64::from(grams);
        self.live -= 1;
        self.changes += 1;
    }

    /// Sets the vector of a chunk; false if the chunk does not exist or the vector has the wrong size.
    pub fn put_vector(&mut self, number: i64, vector: &[f32]) -> bool {
        QuantizedVector::of(vector).is_some_and(|vector| self.put_quantized(number, &vector))
    }

    /// Sets the vector of a chunk, like [`Self::put_vector`].
    pub(super) fn put_quantized(&mut self, number: i64, vector: &QuantizedVector) -> bool {
        let Some(slot) = self.by_number.get(&number.cast_unsigned()) else { return false };
        self.vectors.put(*slot as usize, vector)
    }

    /// The number of indexed chunks.
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether no chunks are indexed.
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The number of chunks with a vector.
    pub const fn embedded(&self) -> usize {
        self.vectors.filled()
    }

    /// Whether so many chunks were removed that the index should be rebuilt.
    pub fn needs_rebuild(&self) -> bool {
        let removed = self.slots.len() - self.live;
        removed > 1_000 && removed > self.live / 2
    }

    /// An estimate of the memory used.
    pub fn bytes(&self) -> usize {
        let features: usize = self.forms.len() * (size_of::<Form>() + 40) + self.features.len() * (size_of::<Feature>() + 32);
        2 * 4 * self.postings + features + self.slots.len() * size_of::<Slot>() + self.vectors.bytes()
    }

    fn count_features(&mut self, forms: &[Posting], slot: u32, change: i32) {
        // A removal uses another stamp than the addition of the same slot.
        self.last_stamp.resize(self.features.len(), 0);
        let stamp = (slot + 1) | if change < 0 { 1 << 31 } else { 0 };
        for form in forms {
            for feature in self.forms[form.number()].features() {
                if std::mem::replace(&mut self.last_stamp[feature as usize], stamp) != stamp {
                    let chunks = &mut self.features[feature as usize].chunks;
                    *chunks = chunks.saturating_add_signed(change);
                }
            }
        }
    }

    /// The form of a word; created if it is new.
    fn word(&mut self, word: &str, key: u64, language: Language) -> u32 {
        if let Some(form) = self.by_form.get(&key) {
            return *form;
        }
        let stem = self.stems.of(word, language);
        let stem = self.feature(STEM, &stem);
        let features = self.with_grams(stem, word);
        let flat = Vocabulary::includes(word).then(|| flat(word));
        let mut parts = Vec::new();
        if let Some(flat) = flat.as_deref().filter(|_| language == Language::De) {
            // Without a vocabulary a word is its own only part.
            let found = if self.splits_new_words { self.vocabulary.parts(flat, &self.stems) } else { vec![self.stems.of(flat, language)] };
            parts = found.iter().map(|part| self.feature(PART, part)).collect();
        }
        let is_german = !parts.is_empty();
        let number = self.form(key, Form { flat: flat.map(Into::into), features, parts, postings: Vec::new() });
        if is_german {
            self.german.push(number);
        }
        number
    }

    fn name(&mut self, name: &str) -> u32 {
        let key = digest(NAME, name);
        if let Some(form) = self.by_form.get(&key) {
            return *form;
        }
        let first = self.feature(NAME, name);
        let features = self.with_grams(first, name);
        self.form(key, Form { flat: None, features, parts: Vec::new(), postings: Vec::new() })
    }

    /// The form's own feature, and its distinct grams.
    fn with_grams(&mut self, first: u32, word: &str) -> Box<[u32]> {
        let mut features = vec![first];
        for gram in grams(word) {
            let feature = self.feature(GRAM, &gram);
            if !features.contains(&feature) {
                features.push(feature);
            }
        }
        features.into()
    }

    fn form(&mut self, key: u64, form: Form) -> u32 {
        let number = u32::try_from(self.forms.len()).unwrap_or(u32::MAX);
        for feature in form.features() {
            let forms = &mut self.features[feature as usize].forms;
            if forms.last() != Some(&number) {
                forms.push(number);
            }
        }
        self.forms.push(form);
        self.by_form.insert(key, number);
        number
    }

    pub(super) fn feature(&mut self, mark: u8, term: &str) -> u32 {
        let next = u32::try_from(self.features.len()).unwrap_or(u32::MAX);
        let number = *self.by_feature.entry(digest(mark, term)).or_insert(next);
        if number == next {
            self.features.push(Feature::default());
        }
        number
    }

    /// The number of an existing feature.
    pub(super) fn find_feature(&self, mark: u8, term: &str) -> Option<u32> {
        self.by_feature.get(&digest(mark, term)).copied()
    }
}

/// All sequences of four letters of a folded word with more than four letters; a shorter word is found as a whole word.
pub(super) fn grams(word: &str) -> Vec<String> {
    let folded = folded(word);
    if letters(&folded) <= GRAM_LETTERS {
        return Vec::new();
    }
    let starts: Vec<usize> = folded.char_indices().map(|(at, _)| at).chain([folded.len()]).collect();
    starts.windows(GRAM_LETTERS + 1).map(|window| folded[window[0]..window[GRAM_LETTERS]].to_owned()).collect()
}
