//! Vectors of one model, quantized to one byte per dimension, with one sign bit per dimension for a fast preselection.
//!
//! The floats stay in the database. The rounding error is below a hundredth of a cosine, and the bytes take a quarter of the memory.
//! Vectors of another size are rejected, and the index replaces all vectors when the model changes, so models are never mixed.

/// The vectors of a collection, by the slot of their chunk.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    dimensions: usize,
    codes: Vec<i8>,
    /// The signs of the codes, one row of whole 64-bit words per slot.
    signs: Vec<u64>,
    /// The factor that converts a product of codes to a cosine; 0 for a slot without a vector.
    scales: Vec<f32>,
    filled: usize,
}

/// Up to this many vectors, all are compared exactly.
const EXACT_LIMIT: usize = 20_000;
/// Above that, this many with the most similar signs, or one in `SHORTLIST_SHARE` if that is more.
const SHORTLIST: usize = 2_000;
const SHORTLIST_SHARE: usize = 50;

/// A quantized vector.
#[derive(Debug)]
pub(super) struct QuantizedVector {
    codes: Vec<i8>,
    scale: f32,
}

/// The vector of a query, and the slots to compare with it.
#[derive(Debug)]
pub(super) struct VectorQuery {
    quantized: QuantizedVector,
    shortlist: Option<Vec<bool>>,
}

impl QuantizedVector {
    /// `None` for a vector without a direction: empty, all zeros, or not finite.
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
    /// Allocates this many slots.
    pub(super) fn grow(&mut self, slots: usize) {
        self.scales.resize(slots, 0.0);
        self.codes.resize(slots * self.dimensions, 0);
        self.signs.resize(slots * self.words(), 0);
    }

    const fn words(&self) -> usize {
        self.dimensions.div_ceil(64)
    }

    /// Stores the vector of a chunk; false if its size differs from the others.
    pub(super) fn put(&mut self, slot: usize, vector: &QuantizedVector) -> bool {
        if self.filled == 0 && self.dimensions != vector.codes.len() {
            self.dimensions = vector.codes.len();
            self.codes = vec![0; self.scales.len() * self.dimensions];
            self.signs = vec![0; self.scales.len() * self.words()];
        }
        if vector.codes.len() != self.dimensions || slot >= self.scales.len() {
            return false;
        }
        self.filled += usize::from(self.scales[slot] == 0.0);
        self.scales[slot] = vector.scale;
        self.codes[slot * self.dimensions..][..self.dimensions].copy_from_slice(&vector.codes);
        let words = self.words();
        self.signs[slot * words..][..words].copy_from_slice(&signs(&vector.codes));
        true
    }

    /// Deletes the vector of a slot.
    pub(super) fn clear(&mut self, slot: usize) {
        if let Some(scale) = self.scales.get_mut(slot)
            && *scale != 0.0
        {
            *scale = 0.0;
            self.filled -= 1;
            self.codes[slot * self.dimensions..][..self.dimensions].fill(0);
        }
    }

    /// The size of the vectors; `None` if there are none.
    pub(super) fn dimensions(&self) -> Option<usize> {
        (self.filled > 0).then_some(self.dimensions)
    }

    /// The number of chunks with a vector.
    pub(super) const fn filled(&self) -> usize {
        self.filled
    }

    /// Prepares a query; `None` if there are no vectors of its size.
    pub(super) fn query(&self, query: &[f32]) -> Option<VectorQuery> {
        let quantized = QuantizedVector::of(query).filter(|_| query.len() == self.dimensions && self.filled > 0)?;
        let shortlist = (self.filled > EXACT_LIMIT).then(|| self.shortlist(&quantized, SHORTLIST.max(self.filled / SHORTLIST_SHARE)));
        Some(VectorQuery { quantized, shortlist })
    }

    /// The cosine with a slot; `None` if the slot is not on the shortlist.
    pub(super) fn shortlisted_cosine(&self, query: &VectorQuery, slot: usize) -> Option<f32> {
        let listed = query.shortlist.as_ref().is_none_or(|list| list.get(slot).copied().unwrap_or(false));
        if listed { self.cosine(query, slot) } else { None }
    }

    /// The cosine with a slot; `None` if the slot has no vector.
    pub(super) fn cosine(&self, query: &VectorQuery, slot: usize) -> Option<f32> {
        let scale = self.scales.get(slot).copied().filter(|scale| *scale != 0.0)?;
        let row = &self.codes[slot * self.dimensions..][..self.dimensions];
        Some(dot(row, &query.quantized.codes) as f32 * scale * query.quantized.scale)
    }

    /// The query moved slightly towards these slots, because what the best hits have in common is likely part of what the user meant.
    pub(super) fn moved_towards(&self, query: &VectorQuery, slots: &[usize], share: f32) -> Option<VectorQuery> {
        let mut moved: Vec<f32> = query.quantized.codes.iter().map(|code| f32::from(*code) * query.quantized.scale).collect();
        for slot in slots {
            let scale = self.scales.get(*slot).copied().unwrap_or(0.0) * share / slots.len() as f32;
            for (sum, code) in moved.iter_mut().zip(&self.codes[slot * self.dimensions..]) {
                *sum += f32::from(*code) * scale;
            }
        }
        Some(VectorQuery { quantized: QuantizedVector::of(&moved)?, shortlist: None })
    }

    /// The slots with the fewest different signs; with ties more than `wanted`.
    fn shortlist(&self, quantized: &QuantizedVector, wanted: usize) -> Vec<bool> {
        let query_signs = signs(&quantized.codes);
        let differing = |row: &[u64]| row.iter().zip(&query_signs).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
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

/// One bit per dimension: whether the code is negative.
fn signs(codes: &[i8]) -> Vec<u64> {
    codes.chunks(64).map(|part| part.iter().enumerate().fold(0, |word, (bit, code)| word | (u64::from(*code < 0) << bit))).collect()
}

/// The dot product in blocks of one width, whose products fit into 16 bits, so that the compiler generates vector instructions.
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

    fn quantized(vector: &[f32]) -> QuantizedVector {
        QuantizedVector::of(vector).unwrap()
    }

    #[test]
    fn cosines_are_close_to_the_exact_ones() {
        let all: Vec<Vec<f32>> = (1..40).map(|seed| unit(seed * 7919, 384)).collect();
        let mut vectors = Vectors::default();
        vectors.grow(all.len());
        for (slot, vector) in all.iter().enumerate() {
            assert!(vectors.put(slot, &quantized(vector)));
        }
        let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
        let query = vectors.query(&all[3]).unwrap();
        for slot in 0..all.len() {
            let cosine = vectors.shortlisted_cosine(&query, slot);
            let truth = all[slot].iter().zip(&all[3]).map(|(a, b)| a * b).sum::<f32>() / length(&all[slot]) / length(&all[3]);
            assert!((cosine.unwrap() - truth).abs() < 0.01, "{slot}: {cosine:?} {truth}");
        }
    }

    #[test]
    fn another_size_is_rejected_and_a_cleared_slot_has_no_cosine() {
        let mut vectors = Vectors::default();
        vectors.grow(2);
        assert!(vectors.put(0, &quantized(&unit(1, 8))) && vectors.put(1, &quantized(&unit(2, 8))));
        assert!(!vectors.put(1, &quantized(&unit(1, 16))));
        assert!(QuantizedVector::of(&[0.0; 8]).is_none(), "no direction");
        assert!(vectors.query(&unit(1, 16)).is_none());
        vectors.clear(0);
        let query = vectors.query(&unit(2, 8)).unwrap();
        assert_eq!(vectors.cosine(&query, 0), None);
        assert!(vectors.cosine(&query, 1).unwrap() > 0.99);
    }

    #[test]
    fn the_shortlist_contains_the_nearest() {
        let mut vectors = Vectors::default();
        vectors.grow(3_000);
        for slot in 0..3_000 {
            assert!(vectors.put(slot, &quantized(&unit(u32::try_from(slot).unwrap() * 7919 + 1, 384))));
        }
        let mut close = unit(5 * 7919 + 1, 384);
        close[0] += 0.5;
        let quantized = QuantizedVector::of(&close).unwrap();
        let list = vectors.shortlist(&quantized, 10);
        assert!(list[5] && list.iter().filter(|listed| **listed).count() < 100);
    }
}
