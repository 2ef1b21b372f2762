//! Scoring: BM25 over words, BM25 over grams, cosine of vectors. Every candidate gets all scores, joined by a convex sum.
//!
//! The same rows give the same order in every database and for every insertion order: ties are broken by document and position.

use std::collections::HashSet;

use super::compounds::Vocabulary;
use super::identifiers::identifiers;
use super::index::{GRAM, Index, NAME, PART, STEM, Slot, grams};
use super::language::Language;
use super::vectors::VectorQuery;
use super::words::{flat, normal, tokens};

pub(super) const K1: f32 = 1.2;
pub(super) const B: f32 = 0.65;
/// The weight of the parts of compounds among the words.
const PART_WEIGHT: f32 = 0.5;
/// The weight of the grams among the lexical scores.
const GRAM_WEIGHT: f32 = 0.3;
/// The number of candidates from each list.
const BEST_WORDS: usize = 100;
const BEST_GRAMS: usize = 50;
const BEST_VECTORS: usize = 100;
/// The number of best chunks towards which the query vector is moved, and the weight of the move (pseudo-relevance feedback).
const FEEDBACK_CHUNKS: usize = 3;
const FEEDBACK_WEIGHT: f32 = 0.07;
/// The words of a query are conclusive if it has at most this many, and at most this many of this many best chunks without vectors contain all.
const CONCLUSIVE_WORDS: usize = 3;
const CONCLUSIVE_CHUNKS: usize = 8;
const CONCLUSIVE_AMONG: usize = 10;
/// A chunk with this share of a word's grams has another form of the word: "reparieren", "repariert".
const OTHER_FORM: f32 = 0.6;
/// The share of their weight that the vectors keep beside conclusive words.
const CONCLUSIVE_SHARE: f32 = 0.25;
/// The average number of postings read per chunk for one list, and the limits of the total: a query takes milliseconds for ten thousand
/// chunks and for a hundred thousand.
const POSTINGS_PER_CHUNK: usize = 3;
const POSTING_LIMITS: std::ops::RangeInclusive<usize> = 60_000..=300_000;
/// Only the start of a longer query is used.
pub(super) const MAX_WORDS: usize = 256;

/// A query to the index of one collection.
#[derive(Debug, Clone, Copy)]
pub struct IndexQuery<'a> {
    pub text: &'a str,
    /// The languages of the collection.
    pub languages: &'a [Language],
    /// The vector of the query, from the model of the collection's vectors.
    pub vector: Option<&'a [f32]>,
    /// The weight of the vectors.
    pub alpha: f32,
}

/// A matching chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    pub number: i64,
    pub score: f32,
    pub bm25: f32,
    pub similarity: Option<f32>,
    /// Ranks in the lists of words and vectors, from 1.
    pub rank_bm25: Option<u32>,
    pub rank_vector: Option<u32>,
    /// The share of the query's weight that the chunk's words cover, 0 to 1.
    pub coverage: f32,
}

/// The features of a query.
#[derive(Debug, Default)]
struct Terms {
    words: Vec<(u32, f32)>,
    grams: Vec<(u32, f32)>,
    /// The features of each word of the query; empty for a word that the collection does not contain.
    groups: Vec<Vec<u32>>,
    /// The grams of each word of the query that the collection contains, and the number of all its grams.
    grams_of_words: Vec<(Vec<u32>, usize)>,
}

impl Terms {
    fn add(list: &mut Vec<(u32, f32)>, feature: u32, weight: f32) {
        match list.iter_mut().find(|(known, _)| *known == feature) {
            Some((_, total)) => *total += weight,
            None => list.push((feature, weight)),
        }
    }
}

/// The scores of one list by slot, and the features that are scored for the candidates only.
struct Scored {
    scores: Vec<f32>,
    norms: Vec<f32>,
    deferred: Vec<(u32, f32)>,
}

impl Index {
    /// The best matching chunks, at most `top`, best first.
    pub fn search(&self, query: IndexQuery<'_>, top: usize) -> Vec<Hit> {
        let terms = self.terms(query);
        let mut by_word = self.bm25(&terms.words, self.words, |slot| slot.words);
        let mut by_gram = self.bm25(&terms.grams, self.grams, |slot| slot.grams);
        let near = query.vector.and_then(|vector| self.vectors.query(vector));
        let mut by_words = self.best(BEST_WORDS, |slot| Some(by_word.scores[slot]).filter(|score| *score > 0.0));
        let by_grams = self.best(BEST_GRAMS, |slot| Some(by_gram.scores[slot]).filter(|score| *score > 0.0));
        let by_vectors = self.best(BEST_VECTORS, |slot| near.as_ref().and_then(|near| self.vectors.shortlisted_cosine(near, slot)));
        let mut candidates: Vec<usize> = by_words.iter().chain(&by_grams).chain(&by_vectors).copied().collect();
        candidates.sort_unstable();
        candidates.dedup();
        self.complete(&mut by_word, &candidates);
        self.complete(&mut by_gram, &candidates);
        let (words, grams) = (by_word.scores, by_gram.scores);
        by_words.sort_unstable_by(|a, b| words[*b].total_cmp(&words[*a]).then_with(|| self.tie(*a, *b)));
        let cosine = |slot: usize| near.as_ref().and_then(|near| self.vectors.cosine(near, slot));
        let alpha = if by_vectors.is_empty() {
            0.0
        } else if self.is_conclusive(&terms, || self.fused(&candidates, &words, &grams, None, 0.0)) {
            CONCLUSIVE_SHARE * query.alpha
        } else {
            query.alpha
        };
        let fused = |near: Option<&VectorQuery>| self.fused(&candidates, &words, &grams, near, alpha);
        let mut ranked = fused(near.as_ref());
        let best: Vec<usize> = ranked.iter().take(FEEDBACK_CHUNKS).map(|(slot, _)| *slot).collect();
        if let Some(moved) = near.as_ref().filter(|_| alpha > 0.0).and_then(|near| self.vectors.moved_towards(near, &best, FEEDBACK_WEIGHT))
        {
            ranked = fused(Some(&moved));
        }
        ranked.truncate(top);
        let rank = |list: &[usize], slot: usize| list.iter().position(|other| *other == slot).and_then(|at| u32::try_from(at + 1).ok());
        let hit = |(slot, score): (usize, f32)| Hit {
            number: self.slots[slot].number,
            score,
            bm25: words[slot],
            similarity: cosine(slot),
            rank_bm25: rank(&by_words, slot),
            rank_vector: rank(&by_vectors, slot),
            coverage: self.coverage(&terms.groups, slot),
        };
        ranked.into_iter().map(hit).collect()
    }

    /// The candidates by the convex sum of their scores, best first.
    fn fused(&self, candidates: &[usize], words: &[f32], grams: &[f32], near: Option<&VectorQuery>, alpha: f32) -> Vec<(usize, f32)> {
        let cosine = |slot: usize| near.and_then(|near| self.vectors.cosine(near, slot));
        let scale = Scale::over(candidates, words, grams, cosine, alpha);
        let score = |slot: &usize| (*slot, scale.score(words[*slot], grams[*slot], cosine(*slot)));
        let mut ranked: Vec<(usize, f32)> = candidates.iter().map(score).collect();
        ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| self.tie(a.0, b.0)));
        ranked
    }

    fn terms(&self, query: IndexQuery<'_>) -> Terms {
        let text = normal(query.text);
        let mut tokens = tokens(&text);
        tokens.truncate(MAX_WORDS);
        let languages = if query.languages.is_empty() { &Language::ALL } else { query.languages };
        let is_content_word = |word: &str| !languages.iter().any(|language| language.has_function_word(word));
        // A query of function words only is still searched.
        let all = !tokens.iter().any(|token| is_content_word(token.word));
        let mut terms = Terms::default();
        for token in tokens.iter().filter(|token| all || is_content_word(token.word)) {
            let mut stems: Vec<String> = languages.iter().map(|language| self.stems.of(token.word, *language)).collect();
            stems.sort_unstable();
            stems.dedup();
            let mut group: Vec<u32> = stems.iter().filter_map(|stem| self.find_feature(STEM, stem)).collect();
            for stem in &group {
                Terms::add(&mut terms.words, *stem, 1.0);
            }
            if languages.contains(&Language::De) && Vocabulary::includes(token.word) {
                for part in self.vocabulary.parts(&flat(token.word), &self.stems).iter().filter_map(|part| self.find_feature(PART, part)) {
                    Terms::add(&mut terms.words, part, PART_WEIGHT);
                    group.push(part);
                }
            }
            let grams = grams(token.word);
            let known: Vec<u32> = grams.iter().filter_map(|gram| self.find_feature(GRAM, gram)).collect();
            for gram in &known {
                Terms::add(&mut terms.grams, *gram, 1.0);
            }
            terms.grams_of_words.push((known, grams.len()));
            terms.groups.push(group);
        }
        let words: Vec<&str> = tokens.iter().map(|token| token.word).filter(|word| all || is_content_word(word)).collect();
        for name in identifiers(&text, &tokens) {
            let Some(feature) = self.find_feature(NAME, &name) else { continue };
            Terms::add(&mut terms.words, feature, 1.0);
            // "LH441" covers the words that it consists of, regardless of its spelling in the chunk.
            for (group, _) in terms.groups.iter_mut().zip(&words).filter(|(_, word)| name.contains(**word)) {
                group.push(feature);
            }
        }
        terms
    }

    /// BM25 of every slot over these features, rarest feature first. Once the posting limit is reached, the remaining features are scored for
    /// the candidates only, because a feature that occurs almost everywhere brings no chunk into the best hundred.
    fn bm25(&self, features: &[(u32, f32)], total: u64, length: impl Fn(&Slot) -> u32) -> Scored {
        let mut scored = Scored { scores: vec![0.0_f32; self.slots.len()], norms: Vec::new(), deferred: Vec::new() };
        if self.live == 0 || features.is_empty() {
            return scored;
        }
        let mean = (total as f32 / self.live as f32).max(1.0);
        scored.norms = self.slots.iter().map(|slot| K1 * (1.0 - B + B * length(slot) as f32 / mean)).collect();
        let mut rarest: Vec<(u32, f32)> = features.to_vec();
        // Stable: equally rare features stay in the order of the query, in every index.
        rarest.sort_by_key(|(feature, _)| self.features[*feature as usize].chunks);
        let (mut counts, mut touched, mut postings) = (vec![0_u32; self.slots.len()], Vec::new(), 0);
        let most = (POSTINGS_PER_CHUNK * self.live).clamp(*POSTING_LIMITS.start(), *POSTING_LIMITS.end());
        for (at, (number, weight)) in rarest.iter().enumerate() {
            let feature = &self.features[*number as usize];
            let weight = weight * rarity(self.live, feature.chunks);
            postings += feature.chunks as usize;
            if at > 0 && postings > most {
                scored.deferred.push((*number, weight));
                continue;
            }
            for form in &feature.forms {
                for posting in &self.forms[*form as usize].postings {
                    let slot = posting.number();
                    if counts[slot] == 0 {
                        touched.push(slot);
                    }
                    counts[slot] += posting.count();
                }
            }
            for slot in touched.drain(..) {
                let count = std::mem::take(&mut counts[slot]) as f32;
                scored.scores[slot] += weight * count / (count + scored.norms[slot]);
            }
        }
        scored
    }

    /// Adds the deferred features to the scores of the candidates.
    fn complete(&self, scored: &mut Scored, candidates: &[usize]) {
        if scored.deferred.is_empty() {
            return;
        }
        // By feature: its position among the deferred features, plus one.
        let mut positions = vec![0_u16; self.features.len()];
        for (position, (feature, _)) in (1_u16..).zip(&scored.deferred) {
            positions[*feature as usize] = position;
        }
        let mut counts = vec![0_u32; scored.deferred.len() + 1];
        for slot in candidates {
            for form in &self.slots[*slot].forms {
                for feature in self.forms[form.number()].features() {
                    counts[usize::from(positions[feature as usize])] += form.count();
                }
            }
            for (count, (_, weight)) in counts[1..].iter().zip(&scored.deferred) {
                let count = *count as f32;
                scored.scores[*slot] += weight * count / (count + scored.norms[*slot]);
            }
            counts.fill(0);
        }
    }

    /// The slots with the highest scores, best first.
    fn best(&self, most: usize, score: impl Fn(usize) -> Option<f32>) -> Vec<usize> {
        let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then_with(|| self.tie(a.0, b.0));
        let mut best: Vec<(usize, f32)> = Vec::with_capacity(2 * most);
        let mut least = f32::NEG_INFINITY;
        for slot in 0..self.slots.len() {
            let Some(score) = score(slot).filter(|score| *score >= least) else { continue };
            if !self.slots[slot].live {
                continue;
            }
            best.push((slot, score));
            if best.len() == 2 * most {
                best.select_nth_unstable_by(most - 1, order);
                best.truncate(most);
                least = best[most - 1].1;
            }
        }
        best.sort_unstable_by(order);
        best.truncate(most);
        best.into_iter().map(|(slot, _)| slot).collect()
    }

    fn tie(&self, a: usize, b: usize) -> std::cmp::Ordering {
        let (a, b) = (&self.slots[a], &self.slots[b]);
        a.document.cmp(&b.document).then(a.ordinal.cmp(&b.ordinal))
    }

    /// Whether the words decide: a short query of which a few chunks have every word, as with an identifier or the wording of a rule. Vectors
    /// are less exact than words there. If many chunks have every word, words do not tell them apart; if none has, the topic is in other words
    /// there; and the words of a long query are a description, which vectors read better. `ranked` are the chunks without vectors.
    fn is_conclusive(&self, terms: &Terms, ranked: impl FnOnce() -> Vec<(usize, f32)>) -> bool {
        if !(1..=CONCLUSIVE_WORDS).contains(&terms.groups.len()) {
            return false;
        }
        let has_all = |slot: usize| {
            let features = self.features_of(slot);
            let has = |group: &[u32]| group.iter().filter(|feature| features.contains(feature)).count();
            terms.groups.iter().zip(&terms.grams_of_words).all(|(group, (grams, all))| {
                let in_other_form = *all > 0 && has(grams) as f32 >= OTHER_FORM * *all as f32;
                in_other_form || has(group) > 0
            })
        };
        let chunks = ranked().into_iter().take(CONCLUSIVE_AMONG).filter(|(slot, _)| has_all(*slot)).count();
        (1..=CONCLUSIVE_CHUNKS).contains(&chunks)
    }

    fn features_of(&self, slot: usize) -> HashSet<u32> {
        self.slots[slot].forms.iter().flat_map(|form| self.forms[form.number()].features()).collect()
    }

    /// The share of the query's weight that a chunk's words cover; words that the collection does not contain weigh most.
    fn coverage(&self, groups: &[Vec<u32>], slot: usize) -> f32 {
        let features = self.features_of(slot);
        let (mut all, mut covered) = (0.0, 0.0);
        for group in groups {
            let chunks = group.iter().map(|feature| self.features[*feature as usize].chunks).max().unwrap_or(0);
            let weight = rarity(self.live, chunks);
            all += weight;
            if group.iter().any(|feature| features.contains(feature)) {
                covered += weight;
            }
        }
        if all > 0.0 { covered / all } else { 0.0 }
    }
}

/// The weight of a term that so many of all chunks contain.
pub(super) fn rarity(all: usize, chunks: u32) -> f32 {
    let (all, with) = (all as f32, chunks as f32);
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

/// The ranges that make the three kinds of scores comparable, over the candidates of one query.
struct Scale {
    words: f32,
    grams: f32,
    nearest: f32,
    farthest: f32,
    alpha: f32,
}

impl Scale {
    fn over(candidates: &[usize], words: &[f32], grams: &[f32], cosine: impl Fn(usize) -> Option<f32>, alpha: f32) -> Self {
        let most = |scores: &[f32]| candidates.iter().map(|slot| scores[*slot]).fold(0.0, f32::max);
        let cosines = || candidates.iter().filter_map(|slot| cosine(*slot));
        Self {
            words: most(words),
            grams: most(grams),
            nearest: cosines().fold(f32::NEG_INFINITY, f32::max),
            farthest: cosines().fold(f32::INFINITY, f32::min),
            alpha,
        }
    }

    fn score(&self, words: f32, grams: f32, cosine: Option<f32>) -> f32 {
        let share = |score: f32, most: f32| if most > 0.0 { score / most } else { 0.0 };
        let lexical = (1.0 - GRAM_WEIGHT) * share(words, self.words) + GRAM_WEIGHT * share(grams, self.grams);
        let near = cosine.map_or(0.0, |cosine| share(cosine - self.farthest, self.nearest - self.farthest));
        (1.0 - self.alpha) * lexical + self.alpha * near
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
