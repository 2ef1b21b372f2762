//! Whether a chunk says anything about a question. The joined score is relative and cannot tell: the best of nothing is still best.
//!
//! So it rests on what is absolute: the share of the question's weight that the chunk's own words cover, and the bare cosine,
//! whose scale is the model's.

use werkruf_store::knowledge::Hit;

/// Texts that cover at least this share of the question's weight are evidence alone.
const SUFFICIENT_COVERAGE: f32 = 0.38;
/// With a cosine that says nothing against it, this share is enough.
const PARTIAL_COVERAGE: f32 = 0.25;

/// Where a model's cosines begin to mean something, and where they prove it. A model that does not know the language finds any two
/// texts in it alike.
const fn cosines(openai: bool, knows_language: bool) -> (f32, f32) {
    match (openai, knows_language) {
        (true, true) => (0.25, 0.42),
        (false, true) => (0.30, 0.50),
        (_, false) => (0.40, 0.65),
    }
}

/// Whether this chunk is evidence that the collection knows an answer.
pub(super) fn is_answerable(hit: &Hit, model: Option<&str>, knows_language: bool) -> bool {
    let openai = model.is_some_and(|model| model.contains("text-embedding-3"));
    let (hint, proof) = cosines(openai, knows_language);
    match hit.similarity {
        Some(cosine) => cosine >= proof || hit.coverage >= SUFFICIENT_COVERAGE || (hit.coverage >= PARTIAL_COVERAGE && cosine >= hint),
        None => hit.coverage >= SUFFICIENT_COVERAGE,
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
        assert!(!is_answerable(&hit(0.2, None), None, true));
        assert!(!is_answerable(&hit(0.2, Some(0.2)), Some("m"), true));
        assert!(is_answerable(&hit(0.9, None), None, true));
        assert!(is_answerable(&hit(0.0, Some(0.7)), Some("m"), true));
        assert!(is_answerable(&hit(0.35, Some(0.35)), Some("m"), true));
        assert!(is_answerable(&hit(0.0, Some(0.45)), Some("text-embedding-3-small"), true));
        assert!(!is_answerable(&hit(0.0, Some(0.55)), Some("m"), false));
    }
}
