//! Whether a chunk says anything about a question. The joined score is relative and cannot tell: the best of nothing is still best.
//!
//! So it rests on what is absolute: the share of the question's weight that the chunk's own words cover, and the bare cosine,
//! whose scale is the model's.

use werkruf_store::knowledge::Hit;

/// Words that cover at least this share of the question's weight are evidence alone.
const COVERED: f32 = 0.38;
/// With a cosine that says nothing against it, this share is enough.
const HALF_COVERED: f32 = 0.25;

/// Where a model's cosines begin to mean something, and where they prove it.
const fn cosines(openai: bool) -> (f32, f32) {
    if openai { (0.25, 0.42) } else { (0.30, 0.50) }
}

/// Whether this chunk is evidence that the collection knows an answer.
pub(super) fn is_answerable(hit: &Hit, model: Option<&str>) -> bool {
    let openai = model.is_some_and(|model| model.contains("text-embedding-3"));
    let (hint, proof) = cosines(openai);
    match hit.similarity {
        Some(cosine) => cosine >= proof || hit.coverage >= COVERED || (hit.coverage >= HALF_COVERED && cosine >= hint),
        None => hit.coverage >= COVERED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(coverage: f32, similarity: Option<f32>) -> Hit {
        Hit { number: 1, score: 1.0, bm25: 9.0, similarity, rank_bm25: Some(1), rank_vector: None, coverage }
    }

    #[test]
    fn the_best_of_nothing_is_nothing() {
        assert!(!is_answerable(&hit(0.2, None), None));
        assert!(!is_answerable(&hit(0.2, Some(0.2)), Some("m")));
        assert!(is_answerable(&hit(0.9, None), None));
        assert!(is_answerable(&hit(0.0, Some(0.7)), Some("m")));
        assert!(is_answerable(&hit(0.35, Some(0.35)), Some("m")));
        assert!(is_answerable(&hit(0.0, Some(0.45)), Some("text-embedding-3-small")));
    }
}
