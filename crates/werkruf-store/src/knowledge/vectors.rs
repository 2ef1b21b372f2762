//! Vectors of one model, one byte a dimension, scanned exactly.
//!
//! The floats stay in the database; what is lost here by rounding is below a hundredth of a cosine, and a quarter of the memory holds
//! four times the chunks. Vectors of another model or size are refused, so two models never meet in one index.

/// The vectors of a collection, by the slot of their chunk.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    dimensions: usize,
    codes: Vec<i8>,
    /// What a code times a code is worth; 0 has no vector.
    scales: Vec<f32>,
    filled: usize,
}

/// A vector as codes.
#[derive(Debug)]
pub(super) struct Coded {
    codes: Vec<i8>,
    scale: f32,
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
    }

    /// Takes a chunk's vector; false when it does not fit the others.
    pub(super) fn put(&mut self, slot: usize, vector: &[f32]) -> bool {
        if self.filled == 0 && self.dimensions != vector.len() {
            self.dimensions = vector.len();
            self.codes = vec![0; self.scales.len() * self.dimensions];
        }
        if vector.len() != self.dimensions || slot >= self.scales.len() {
            return false;
        }
        let Some(coded) = Coded::of(vector) else { return false };
        self.filled += usize::from(self.scales[slot] == 0.0);
        self.scales[slot] = coded.scale;
        self.codes[slot * self.dimensions..][..self.dimensions].copy_from_slice(&coded.codes);
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

    /// The cosine with every slot; `None` where there is no vector. Empty when the sizes differ.
    pub(super) fn cosines(&self, query: &[f32]) -> Vec<Option<f32>> {
        let Some(query) = Coded::of(query).filter(|_| query.len() == self.dimensions && self.filled > 0) else { return Vec::new() };
        let rows = self.codes.chunks_exact(self.dimensions);
        rows.zip(&self.scales).map(|(row, scale)| (*scale != 0.0).then(|| dot(row, &query.codes) as f32 * scale * query.scale)).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.codes.capacity() + 4 * self.scales.capacity()
    }
}

/// In pieces of one width, which the compiler turns into vector instructions.
fn dot(left: &[i8], right: &[i8]) -> i32 {
    const WIDTH: usize = 16;
    let (left_pieces, right_pieces) = (left.chunks_exact(WIDTH), right.chunks_exact(WIDTH));
    let rest: i32 = left_pieces.remainder().iter().zip(right_pieces.remainder()).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    let mut sums = [0_i32; WIDTH];
    for (a, b) in left_pieces.zip(right_pieces) {
        for at in 0..WIDTH {
            sums[at] += i32::from(i16::from(a[at]) * i16::from(b[at]));
        }
    }
    rest + sums.iter().sum::<i32>()
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
        for (slot, cosine) in vectors.cosines(&all[3]).into_iter().enumerate() {
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
        assert!(vectors.cosines(&unit(1, 16)).is_empty());
        vectors.clear(0);
        let cosines = vectors.cosines(&unit(2, 8));
        assert_eq!(cosines[0], None);
        assert!(cosines[1].unwrap() > 0.99);
    }
}
