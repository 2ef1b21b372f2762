//! Vectors of one model, one byte a dimension, and one bit a dimension to look through many of them first.
//!
//! The floats stay in the database; what is lost here by rounding is below a hundredth of a cosine, and a quarter of the memory holds
//! four times the chunks. Vectors of another model or size are refused, so two models never meet in one index.

/// The vectors of a collection, by the slot of their chunk.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    dimensions: usize,
    codes: Vec<i8>,
    /// The signs of the codes, in rows of whole words.
    signs: Vec<u64>,
    /// What a code times a code is worth; 0 has no vector.
    scales: Vec<f32>,
    filled: usize,
}

/// Up to so many vectors every one is compared exactly.
const FEW: usize = 20_000;
/// Of more, so many with the closest signs, or one in so many if that is more.
const SHORTLIST: usize = 2_000;
const SHORTLIST_SHARE: usize = 50;

/// A vector as codes.
#[derive(Debug)]
pub(super) struct Coded {
    codes: Vec<i8>,
    scale: f32,
}

/// A question's vector, and which slots are worth comparing with it.
#[derive(Debug)]
pub(super) struct Near {
    coded: Coded,
    shortlist: Option<Vec<bool>>,
}

impl Coded {
    /// `None` for what points nowhere: empty, all zeros, not finite.
    pub(super) fn of(vector: &[f32]) -> Option<Self> {
        let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let largest = vector.iter().fold(0_f32, |largest, value| largest.max(value.abs()));
        if !length.is_finite() || length <= 0.0 || largest <= 0.0 {
            return None;
        }
        let step = largest / 127.0;
        let codes = vector.iter().map(|value| (value / step).round() as i8).collect();
        let scale = (f64::from(step) / length) as f32;
        Some(Self { codes, scale })
    }
}

impl Vectors {
    /// Room for this many slots.
    pub(super) fn grow(&mut self, slots: usize) {
        self.scales.resize(slots, 0.0);
        self.codes.resize(slots * self.dimensions, 0);
        self.signs.resize(slots * self.words(), 0);
    }

    const fn words(&self) -> usize {
        self.dimensions.div_ceil(64)
    }

    /// Takes a chunk's vector; false when it does not fit the others.
    pub(super) fn put(&mut self, slot: usize, vector: &[f32]) -> bool {
        if self.filled == 0 && self.dimensions != vector.len() {
            self.dimensions = vector.len();
            self.codes = vec![0; self.scales.len() * self.dimensions];
            self.signs = vec![0; self.scales.len() * self.words()];
        }
        if vector.len() != self.dimensions || slot >= self.scales.len() {
            return false;
        }
        let Some(coded) = Coded::of(vector) else { return false };
        self.filled += usize::from(self.scales[slot] == 0.0);
        self.scales[slot] = coded.scale;
        self.codes[slot * self.dimensions..][..self.dimensions].copy_from_slice(&coded.codes);
        let words = self.words();
        self.signs[slot * words..][..words].copy_from_slice(&signs(&coded.codes));
        true
    }

    /// Forgets a slot's vector.
    pub(super) fn clear(&mut self, slot: usize) {
        if let Some(scale) = self.scales.get_mut(slot)
            && *scale != 0.0
        {
            *scale = 0.0;
            self.filled -= 1;
            self.codes[slot * self.dimensions..][..self.dimensions].fill(0);
        }
    }

    /// How many chunks have one.
    pub(super) const fn filled(&self) -> usize {
        self.filled
    }

    /// Prepares a question; `None` when there is nothing of its size.
    pub(super) fn near(&self, query: &[f32]) -> Option<Near> {
        let coded = Coded::of(query).filter(|_| query.len() == self.dimensions && self.filled > 0)?;
        let shortlist = (self.filled > FEW).then(|| self.shortlist(&coded, SHORTLIST.max(self.filled / SHORTLIST_SHARE)));
        Some(Near { coded, shortlist })
    }

    /// The cosine with a slot that is worth comparing.
    pub(super) fn listed(&self, near: &Near, slot: usize) -> Option<f32> {
        let listed = near.shortlist.as_ref().is_none_or(|list| list.get(slot).copied().unwrap_or(false));
        if listed { self.cosine(near, slot) } else { None }
    }

    /// The cosine with any slot; `None` where there is no vector.
    pub(super) fn cosine(&self, near: &Near, slot: usize) -> Option<f32> {
        let scale = self.scales.get(slot).copied().filter(|scale| *scale != 0.0)?;
        let row = &self.codes[slot * self.dimensions..][..self.dimensions];
        Some(dot(row, &near.coded.codes) as f32 * scale * near.coded.scale)
    }

    /// The question moved a little towards these slots: what the best answers have in common is part of what was meant.
    pub(super) fn towards(&self, near: &Near, slots: &[usize], share: f32) -> Option<Near> {
        let mut moved: Vec<f32> = near.coded.codes.iter().map(|code| f32::from(*code) * near.coded.scale).collect();
        for slot in slots {
            let scale = self.scales.get(*slot).copied().unwrap_or(0.0) * share / slots.len() as f32;
            for (sum, code) in moved.iter_mut().zip(&self.codes[slot * self.dimensions..]) {
                *sum += f32::from(*code) * scale;
            }
        }
        Some(Near { coded: Coded::of(&moved)?, shortlist: None })
    }

    /// The slots whose signs differ least, this many or, with ties, some more.
    fn shortlist(&self, coded: &Coded, wanted: usize) -> Vec<bool> {
        let question = signs(&coded.codes);
        let differing = |row: &[u64]| row.iter().zip(&question).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
        let distances: Vec<u32> = self.signs.chunks_exact(self.words()).map(differing).collect();
        let mut tally = vec![0_usize; self.dimensions + 1];
        for (distance, _) in distances.iter().zip(&self.scales).filter(|(_, scale)| **scale != 0.0) {
            tally[*distance as usize] += 1;
        }
        let mut found = 0;
        let limit = tally.iter().position(|count| {
            found += count;
            found >= wanted
        });
        let limit = limit.unwrap_or(self.dimensions);
        distances.iter().map(|distance| *distance as usize <= limit).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.codes.capacity() + 8 * self.signs.capacity() + 4 * self.scales.capacity()
    }
}

/// One bit a dimension: whether it is negative.
fn signs(codes: &[i8]) -> Vec<u64> {
    codes.chunks(64).map(|part| part.iter().enumerate().fold(0, |word, (bit, code)| word | (u64::from(*code < 0) << bit))).collect()
}

/// In pieces of one width whose products fit 16 bits: the compiler turns this into vector instructions.
fn dot(left: &[i8], right: &[i8]) -> i32 {
    const WIDTH: usize = 16;
    let (ours, theirs) = (left.chunks_exact(WIDTH), right.chunks_exact(WIDTH));
    let rest: i32 = ours.remainder().iter().zip(theirs.remainder()).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    let mut sum = rest;
    for (a, b) in ours.zip(theirs) {
        let mut products = [0_i16; WIDTH];
        for at in 0..WIDTH {
            products[at] = i16::from(a[at]) * i16::from(b[at]);
        }
        sum += products.iter().map(|product| i32::from(*product)).sum::<i32>();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(seed: u32, dimensions: usize) -> Vec<f32> {
        let mut state = seed;
        (0..dimensions)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f32::from(i16::try_from(state >> 17).unwrap_or(0)) / 16384.0 - 1.0
            })
            .collect()
    }

    #[test]
    fn close_to_the_true_cosine() {
        let all: Vec<Vec<f32>> = (1..40).map(|seed| unit(seed * 7919, 384)).collect();
        let mut vectors = Vectors::default();
        vectors.grow(all.len());
        for (slot, vector) in all.iter().enumerate() {
            assert!(vectors.put(slot, vector));
        }
        let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
        let near = vectors.near(&all[3]).unwrap();
        for slot in 0..all.len() {
            let cosine = vectors.listed(&near, slot);
            let truth = all[slot].iter().zip(&all[3]).map(|(a, b)| a * b).sum::<f32>() / length(&all[slot]) / length(&all[3]);
            assert!((cosine.unwrap() - truth).abs() < 0.01, "{slot}: {cosine:?} {truth}");
        }
    }

    #[test]
    fn another_size_is_refused_and_a_cleared_slot_is_silent() {
        let mut vectors = Vectors::default();
        vectors.grow(2);
        assert!(vectors.put(0, &unit(1, 8)) && vectors.put(1, &unit(2, 8)));
        assert!(!vectors.put(1, &unit(1, 16)));
        assert!(!vectors.put(1, &[0.0; 8]));
        assert!(vectors.near(&unit(1, 16)).is_none());
        vectors.clear(0);
        let near = vectors.near(&unit(2, 8)).unwrap();
        assert_eq!(vectors.cosine(&near, 0), None);
        assert!(vectors.cosine(&near, 1).unwrap() > 0.99);
    }

    #[test]
    fn the_shortlist_holds_the_nearest() {
        let mut vectors = Vectors::default();
        vectors.grow(3_000);
        for slot in 0..3_000 {
            assert!(vectors.put(slot, &unit(u32::try_from(slot).unwrap() * 7919 + 1, 384)));
        }
        let mut close = unit(5 * 7919 + 1, 384);
        close[0] += 0.5;
        let coded = Coded::of(&close).unwrap();
        let list = vectors.shortlist(&coded, 10);
        assert!(list[5] && list.iter().filter(|listed| **listed).count() < 100);
    }
}
