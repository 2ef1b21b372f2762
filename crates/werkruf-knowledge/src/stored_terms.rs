//! The stems of every chunk as small numbers in the database. While an index is built, searches scan them instead: words only, but at once.
//!
//! A row has the number of words of the chunk, then its stems and identifiers in ascending order: 24 bits of a digest and a count. A list
//! of words can be matched against the numbers, so the table is as confidential as the text. The row is deleted with its chunk.

use super::analysis::{Analysis, IndexedChunk};
use super::background::give_way;
use super::chunks::Chunk;
use super::identifiers::identifiers;
use super::index::{NAME, STEM};
use super::language::Language;
use super::rows::NewDocuments;
use super::search::{B, Hit, K1, MAX_WORDS, rarity};
use super::stem::Stems;
use super::words::{DigestMap, digest, normal, tokens};

const COUNT_BITS: u32 = 8;
const MAX_COUNT: u32 = (1 << COUNT_BITS) - 1;

/// A stem or identifier as it is stored, without a count.
fn term(mark: u8, text: &str) -> u32 {
    (digest(mark, text) >> 32) as u32 & !MAX_COUNT
}

/// The terms of every chunk of a batch, in the order of the documents and chunks.
pub fn stored_terms(batch: &NewDocuments) -> Vec<Vec<u8>> {
    let (stems, mut known) = (Stems::default(), DigestMap::<u32>::default());
    let mut rows = Vec::new();
    for document in &batch.documents {
        let language = document.language.as_deref().and_then(Language::parse);
        for (_, chunk) in &document.chunks {
            let text = Chunk::indexed(&document.title, &chunk.heading, &chunk.content);
            let analysis = Analysis::of(&IndexedChunk { number: 0, document_id: "".into(), ordinal: 0, language, text });
            let mut terms: Vec<u32> = analysis.names.iter().map(|name| term(NAME, name)).collect();
            let names = terms.len();
            for (word, key) in analysis.words() {
                terms.push(*known.entry(key).or_insert_with(|| term(STEM, &stems.of(word, analysis.language))));
            }
            give_way();
            let words = u32::try_from(terms.len() - names).unwrap_or(u32::MAX);
            terms.sort_unstable();
            let counted = terms.chunk_by(|a, b| a == b).map(|same| same[0] | u32::try_from(same.len()).unwrap_or(MAX_COUNT).min(MAX_COUNT));
            rows.push([words].into_iter().chain(counted).flat_map(u32::to_le_bytes).collect());
        }
    }
    rows
}

/// A search over the stored terms of a collection.
#[derive(Debug)]
pub struct TermScan {
    /// The terms of the query, sorted.
    wanted: Vec<u32>,
    /// One bit for the upper half of every wanted term, because most terms of a chunk are not wanted.
    filter: Vec<u64>,
    /// The wanted terms of each word of the query, by position.
    groups: Vec<Vec<usize>>,
    chunks: usize,
    words: u64,
    /// The number of chunks with each wanted term.
    with_term: Vec<u32>,
    matches: Vec<Match>,
    /// Positions in `wanted` and counts, of all matches one after another.
    found: Vec<(u16, u16)>,
}

#[derive(Debug)]
struct Match {
    chunk: i64,
    words: u32,
    /// The range in `found`.
    from: usize,
    until: usize,
}

impl TermScan {
    /// A scan for these words, in every language.
    pub(super) fn of(query: &str) -> Self {
        let (stems, text) = (Stems::default(), normal(query));
        let mut tokens = tokens(&text);
        tokens.truncate(MAX_WORDS);
        let is_content_word = |word: &str| !Language::ALL.iter().any(|language| language.has_function_word(word));
        // A query of function words only is still searched.
        let all = !tokens.iter().any(|token| is_content_word(token.word));
        let words: Vec<&str> = tokens.iter().map(|token| token.word).filter(|word| all || is_content_word(word)).collect();
        let stems_of = |word: &&str| -> Vec<u32> { Language::ALL.iter().map(|language| term(STEM, &stems.of(word, *language))).collect() };
        let mut groups: Vec<Vec<u32>> = words.iter().map(stems_of).collect();
        let mut wanted: Vec<u32> = groups.iter().flatten().copied().collect();
        for name in identifiers(&text, &tokens) {
            wanted.push(term(NAME, &name));
            for (group, _) in groups.iter_mut().zip(&words).filter(|(_, word)| name.contains(**word)) {
                group.push(term(NAME, &name));
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut filter = vec![0_u64; 1 << 10];
        wanted.iter().for_each(|term| filter[(term >> 22) as usize] |= 1 << ((term >> 16) & 63));
        let position = |term: u32| wanted.binary_search(&term).unwrap_or_default();
        let groups = groups.into_iter().map(|group| group.into_iter().map(position).collect()).collect();
        let with_term = vec![0; wanted.len()];
        Self { wanted, filter, groups, chunks: 0, words: 0, with_term, matches: Vec::new(), found: Vec::new() }
    }

    /// Reads the row of a chunk.
    pub fn read(&mut self, chunk: i64, row: &[u8]) {
        let (numbers, _) = row.as_chunks::<4>();
        let Some((words, terms)) = numbers.split_first() else { return };
        let words = u32::from_le_bytes(*words);
        self.chunks += 1;
        self.words += u64::from(words);
        let from = self.found.len();
        for number in terms.iter().map(|bytes| u32::from_le_bytes(*bytes)) {
            if self.filter[(number >> 22) as usize] >> ((number >> 16) & 63) & 1 == 0 {
                continue;
            }
            if let Ok(at) = self.wanted.binary_search(&(number & !MAX_COUNT)) {
                self.with_term[at] += 1;
                self.found.push((u16::try_from(at).unwrap_or(u16::MAX), (number & MAX_COUNT) as u16));
            }
        }
        if self.found.len() > from {
            self.matches.push(Match { chunk, words, from, until: self.found.len() });
        }
    }

    /// The best chunks by BM25, at most `top`, best first.
    pub(super) fn hits(self, top: usize) -> Vec<Hit> {
        let weights: Vec<f32> = self.with_term.iter().map(|chunks| rarity(self.chunks, *chunks)).collect();
        let mean = (self.words as f32 / self.chunks.max(1) as f32).max(1.0);
        let score = |one: &Match| {
            let norm = K1 * (1.0 - B + B * one.words as f32 / mean);
            let found = &self.found[one.from..one.until];
            found.iter().map(|(at, count)| weights[usize::from(*at)] * f32::from(*count) / (f32::from(*count) + norm)).sum::<f32>()
        };
        let mut ranked: Vec<(f32, &Match)> = self.matches.iter().map(|one| (score(one), one)).collect();
        let order = |a: &(f32, &Match), b: &(f32, &Match)| b.0.total_cmp(&a.0).then(a.1.chunk.cmp(&b.1.chunk));
        if ranked.len() > top {
            ranked.select_nth_unstable_by(top, order);
            ranked.truncate(top);
        }
        ranked.sort_unstable_by(order);
        let best = ranked.first().map_or(1.0, |(score, _)| *score);
        let hit = |(rank, (bm25, one)): (u32, &(f32, &Match))| Hit {
            number: one.chunk,
            score: bm25 / best,
            bm25: *bm25,
            similarity: None,
            rank_bm25: Some(rank),
            rank_vector: None,
            coverage: self.coverage(&self.found[one.from..one.until]),
        };
        (1_u32..).zip(&ranked).map(hit).collect()
    }

    /// The share of the query's weight that the found terms cover.
    fn coverage(&self, found: &[(u16, u16)]) -> f32 {
        let (mut all, mut covered) = (0.0, 0.0);
        for group in &self.groups {
            let weight = rarity(self.chunks, group.iter().map(|at| self.with_term[*at]).max().unwrap_or(0));
            all += weight;
            if group.iter().any(|wanted| found.iter().any(|(at, _)| usize::from(*at) == *wanted)) {
                covered += weight;
            }
        }
        if all > 0.0 { covered / all } else { 0.0 }
    }
}
