//! A generated library: chunks of invented words with a natural frequency distribution and real function words; questions taken from
//! its chunks; and vectors that are close if the texts share words. Everything is derived from one seed.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

/// Words per chunk.
const CHUNK_WORDS: usize = 120;
const DOCUMENT_CHUNKS: usize = 10;
const VOCABULARY: usize = 30_000;
/// As in all-MiniLM-L6-v2.
const DIMENSIONS: usize = 384;
/// The most frequent words of the library, as of any English text.
const FUNCTION_WORDS: &str = "the of and to in a is that for it as was with be by on not this are or from at which but have an had they \
    were their has would what will there if can who does do into when then where no these its how about than did could should been why";
const SYLLABLES: [&str; 24] = [
    "ba", "cor", "den", "fli", "gor", "hal", "jin", "kep", "lun", "mar", "nol", "pri", "qua", "ros", "sti", "tem", "ula", "ver", "wan",
    "xo", "yel", "zur", "bri", "cho",
];

/// The generated library.
pub struct MadeLibrary {
    words: Vec<String>,
    by_word: HashMap<String, usize>,
    /// The cumulative probability of the words by rank.
    likely: Vec<f64>,
    directions: Vec<f32>,
    chunks: usize,
}

/// A question and its source document.
pub struct MadeQuestion {
    pub text: String,
    pub document: String,
}

/// A deterministic random number generator.
struct Rng(u64);

impl Rng {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }
}

impl MadeLibrary {
    /// A library of so many chunks.
    pub fn new(chunks: usize) -> Self {
        let mut rng = Rng(1);
        let mut words: Vec<String> = FUNCTION_WORDS.split_whitespace().map(str::to_owned).collect();
        let mut by_word: HashMap<String, usize> = words.iter().cloned().enumerate().map(|(at, word)| (word, at)).collect();
        while words.len() < VOCABULARY {
            let word: String = (0..2 + rng.below(3)).map(|_| SYLLABLES[rng.below(SYLLABLES.len())]).collect();
            if !by_word.contains_key(&word) {
                by_word.insert(word.clone(), words.len());
                words.push(word);
            }
        }
        let mut total = 0.0;
        let sums = (0..words.len()).map(|rank| {
            total += 1.0 / (rank as f64 + 2.7);
            total
        });
        let mut likely: Vec<f64> = sums.collect();
        likely.iter_mut().for_each(|sum| *sum /= total);
        let directions = (0..words.len() * DIMENSIONS).map(|_| (rng.share() - 0.5) as f32).collect();
        Self { words, by_word, likely, directions, chunks }
    }

    /// The number of documents.
    pub const fn documents(&self) -> usize {
        self.chunks.div_ceil(DOCUMENT_CHUNKS)
    }

    /// The words of a chunk, as ranks.
    fn chunk(&self, number: usize) -> Vec<usize> {
        let mut rng = Rng(0x5eed ^ ((number as u64) << 20));
        (0..CHUNK_WORDS)
            .map(|_| {
                let share = rng.share();
                self.likely.partition_point(|sum| *sum < share).min(self.words.len() - 1)
            })
            .collect()
    }

    /// The text of a chunk: sentences of ten words.
    pub fn text(&self, number: usize) -> String {
        let mut text = String::new();
        for sentence in self.chunk(number).chunks(10) {
            let words: Vec<&str> = sentence.iter().map(|word| self.words[*word].as_str()).collect();
            // Writing to a string cannot fail.
            let _ = write!(text, "{}. ", words.join(" "));
        }
        text.trim_end().to_owned()
    }

    /// The chunks of a document.
    fn of_document(&self, document: usize) -> std::ops::Range<usize> {
        document * DOCUMENT_CHUNKS..((document + 1) * DOCUMENT_CHUNKS).min(self.chunks)
    }

    /// A document in the format of the API.
    pub fn document(&self, document: usize) -> Value {
        let paragraphs: Vec<String> = self.of_document(document).map(|chunk| self.text(chunk)).collect();
        json!({"id": name(document), "title": "", "language": "en", "text": paragraphs.join("\n\n")})
    }

    /// Questions of 4 to 20 consecutive words, each from a different chunk.
    pub fn questions(&self, count: usize) -> Vec<MadeQuestion> {
        let mut rng = Rng(7);
        let questions = (0..count).map(|at| {
            let number = rng.below(self.chunks);
            let length = 4 + at % 17;
            let words = self.chunk(number);
            let from = rng.below(words.len() - length);
            let words: Vec<&str> = words[from..from + length].iter().map(|word| self.words[*word].as_str()).collect();
            MadeQuestion { text: words.join(" "), document: name(number / DOCUMENT_CHUNKS) }
        });
        questions.collect()
    }

    /// A question without its function words, as a user would write it for a simple engine.
    pub fn without_function_words(question: &str) -> String {
        let function = |word: &&str| FUNCTION_WORDS.split_whitespace().any(|other| other == *word);
        question.split_whitespace().filter(|word| !function(word)).collect::<Vec<_>>().join(" ")
    }

    /// The sum of the vectors of the words of a text.
    pub fn vector(&self, text: &str) -> Vec<f32> {
        let mut sum = vec![0.0_f32; DIMENSIONS];
        let functions = FUNCTION_WORDS.split_whitespace().count();
        for word in text.split(|letter: char| !letter.is_alphanumeric()).filter_map(|word| self.by_word.get(word)) {
            if *word >= functions {
                for (sum, part) in sum.iter_mut().zip(&self.directions[word * DIMENSIONS..]) {
                    *sum += part;
                }
            }
        }
        let length = sum.iter().map(|part| part * part).sum::<f32>().sqrt();
        if length > 0.0 {
            sum.iter_mut().for_each(|part| *part /= length);
        } else {
            sum[0] = 1.0;
        }
        sum
    }
}

fn name(document: usize) -> String {
    format!("document-{document}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_cut_into_its_chunks() {
        let library = MadeLibrary::new(25);
        let cut = |document: usize| werkruf_knowledge::chunks(library.document(document)["text"].as_str().unwrap_or_default()).len();
        assert_eq!((library.documents(), cut(0), cut(2)), (3, 10, 5));
        let questions = library.questions(34);
        let words = |question: &MadeQuestion| question.text.split(' ').count();
        assert_eq!((questions.iter().map(words).min(), questions.iter().map(words).max()), (Some(4), Some(20)));
    }

    #[test]
    fn close_texts_are_close() {
        let library = MadeLibrary::new(100);
        let near = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let text = library.text(3);
        let (whole, half) = (library.vector(&text), library.vector(&text[..text.len() / 2]));
        assert!(near(&whole, &half) > near(&whole, &library.vector(&library.text(4))) + 0.1);
    }
}
