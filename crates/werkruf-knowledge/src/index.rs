//! The index of one collection, in memory, built from its rows.
//!
//! A *form* is a word as written, in a language, with the chunks that contain it. A *feature* is what a query matches: a stem, a part of
//! a compound, an identifier, four letters in a row; it lists its forms. So every chunk is listed once per word, regardless of the
//! number of features, and the parts of compounds can be recomputed without changing the postings.
//!
//! Invariants: a slot is never reused; the chunk count of a feature is exact, also after removals.

use super::compounds::Vocabulary;
use super::identifiers::identifiers;
use super::language::Language;
use super::stem::Stems;
use super::vectors::Vectors;
use super::words::{DigestMap, digest, flat, folded, letters, normal, tokens};

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
    flat: Option<Box<str>>,
    german: bool,
    /// The stem or identifier first, then the grams.
    features: Box<[u32]>,
    parts: Vec<u32>,
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

/// A chunk to index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedChunk {
    pub number: i64,
    pub document_id: std::sync::Arc<str>,
    pub ordinal: u32,
    pub language: Option<Language>,
    /// Title, heading path and content.
    pub text: String,
}

/// The index of one collection.
#[derive(Debug, Default)]
pub struct Index {
    pub(super) stems: Stems,
    pub(super) forms: Vec<Form>,
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
    /// Changes since the compounds were last updated.
    changes: usize,
    /// The slot that last counted a feature, plus one; makes counting distinct features cheap.
    last_stamp: Vec<u32>,
    postings: usize,
}

impl Index {
    /// Adds a chunk; a chunk that is already indexed is not changed. False if the index is full.
    pub fn add(&mut self, chunk: &IndexedChunk) -> bool {
        let key = chunk.number.cast_unsigned();
        if self.by_number.contains_key(&key) {
            return true;
        }
        let Ok(slot) = u32::try_from(self.slots.len()) else { return false };
        if self.slots.len() >= MAX_SLOTS {
            return false;
        }
        let language = chunk.language.unwrap_or(Language::En);
        let text = normal(&chunk.text);
        let tokens = tokens(&text);
        let mut forms = Vec::with_capacity(tokens.len());
        for token in tokens.iter().filter(|token| !language.has_function_word(token.word)) {
            forms.push(self.word(token.word, language));
        }
        let words = forms.len();
        let mut grams = 0;
        for form in &forms {
            grams += self.forms[*form as usize].grams();
        }
        for name in identifiers(&text, &tokens) {
            forms.push(self.name(&name));
        }
        forms.sort_unstable();
        let forms: Box<[Posting]> = forms.chunk_by(|a, b| a == b).map(|same| Posting::new(same[0], same.len())).collect();
        for form in &forms {
            self.forms[form.number()].postings.push(Posting::new(slot, form.count() as usize));
        }
        let (words, grams) = (u32::try_from(words).unwrap_or(u32::MAX), u32::try_from(grams).unwrap_or(u32::MAX));
        self.count_features(&forms, slot, 1);
        self.postings += forms.len();
        self.words += u64::from(words);
        self.grams += u64::from(grams);
        self.live += 1;
        self.changes += 1;
        self.by_number.insert(key, slot);
        let document = std::sync::Arc::clone(&chunk.document_id);
        self.slots.push(Slot { number: chunk.number, document, ordinal: chunk.ordinal, live: true, words, grams, forms });
        self.vectors.grow(self.slots.len());
        true
    }

    /// Removes a chunk with every posting and its vector.
    pub fn remove(&mut self, number: i64) {
        let Some(at) = self.by_number.remove(&number.cast_unsigned()) else { return };
        let slot = &mut self.slots[at as usize];
        slot.live = false;
        let forms = std::mem::take(&mut slot.forms);
        let (words, grams) = (slot.words, slot.grams);
        for form in &forms {
            let postings = &mut self.forms[form.number()].postings;
            if let Ok(position) = postings.binary_search_by_key(&(at as usize), |posting| posting.number()) {
                postings.remove(position);
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
        let Some(slot) = self.by_number.get(&number.cast_unsigned()) else { return false };
        self.vectors.put(*slot as usize, vector)
    }

    /// Deletes all vectors, because the collection's model changed.
    pub fn drop_vectors(&mut self) {
        self.vectors = Vectors::default();
        self.vectors.grow(self.slots.len());
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

    /// Recomputes the parts of compounds, once enough chunks have changed.
    pub fn update_compounds(&mut self) {
        if self.changes * 10 <= self.live && self.changes < 1_000 || self.changes == 0 {
            return;
        }
        self.changes = 0;
        self.vocabulary.clear();
        for form in &self.forms {
            if let Some(flat) = form.flat.as_deref().filter(|_| !form.postings.is_empty()) {
                self.vocabulary.add(flat, u32::try_from(form.postings.len()).unwrap_or(u32::MAX));
            }
        }
        for at in 0..self.forms.len() {
            let Some(flat) = self.forms[at].flat.as_deref().filter(|_| self.forms[at].german) else { continue };
            let parts = self.vocabulary.parts(flat, &self.stems);
            let parts: Vec<u32> = parts.iter().map(|part| self.feature(PART, part)).collect();
            if parts != self.forms[at].parts {
                self.assign_parts(at, parts);
            }
        }
        self.recount_parts();
    }

    fn assign_parts(&mut self, at: usize, parts: Vec<u32>) {
        let form = u32::try_from(at).unwrap_or(u32::MAX);
        for old in std::mem::take(&mut self.forms[at].parts) {
            self.features[old as usize].forms.retain(|other| *other != form);
        }
        for part in &parts {
            let forms = &mut self.features[*part as usize].forms;
            if forms.last() != Some(&form) {
                forms.push(form);
            }
        }
        self.forms[at].parts = parts;
    }

    /// Recomputes the chunk counts of the parts.
    fn recount_parts(&mut self) {
        for form in &self.forms {
            for part in &form.parts {
                self.features[*part as usize].chunks = 0;
            }
        }
        let mut last_stamp = vec![0_u32; self.features.len()];
        for (at, slot) in self.slots.iter().enumerate() {
            let stamp = u32::try_from(at + 1).unwrap_or(u32::MAX);
            for part in slot.forms.iter().flat_map(|form| &self.forms[form.number()].parts) {
                if std::mem::replace(&mut last_stamp[*part as usize], stamp) != stamp {
                    self.features[*part as usize].chunks += 1;
                }
            }
        }
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
    fn word(&mut self, word: &str, language: Language) -> u32 {
        let key = digest(b'0' + language as u8, word);
        if let Some(form) = self.by_form.get(&key) {
            return *form;
        }
        let stem = self.stems.of(word, language);
        let stem = self.feature(STEM, &stem);
        let features = self.with_grams(stem, word);
        let flat = Vocabulary::includes(word).then(|| flat(word));
        let german = language == Language::De;
        // Until the compounds are updated, a word is its own only part.
        let own = flat.as_deref().filter(|_| german).map(|flat| self.stems.of(flat, Language::De));
        let parts = own.map(|own| vec![self.feature(PART, &own)]).unwrap_or_default();
        self.form(key, Form { flat: flat.map(Into::into), german, features, parts, postings: Vec::new() })
    }

    fn name(&mut self, name: &str) -> u32 {
        let key = digest(NAME, name);
        if let Some(form) = self.by_form.get(&key) {
            return *form;
        }
        let first = self.feature(NAME, name);
        let features = self.with_grams(first, name);
        self.form(key, Form { flat: None, german: false, features, parts: Vec::new(), postings: Vec::new() })
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

    fn feature(&mut self, mark: u8, term: &str) -> u32 {
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
