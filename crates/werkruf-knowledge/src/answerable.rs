//! Decides whether a chunk is evidence for an answer. The combined score is relative: even among irrelevant chunks one is best.
//!
//! The decision therefore uses absolute values: the share of the query's term weight that the chunk's words cover, and the
//! cosine similarity, whose scale depends on the embedding model.

use crate::Hit;

/// A chunk that covers at least this share of the query's term weight is evidence by itself.
const SUFFICIENT_COVERAGE: f32 = 0.38;
/// This share is enough if the cosine reaches the lower threshold.
const PARTIAL_COVERAGE: f32 = 0.25;

/// The lower and the upper cosine threshold: from the lower one on the cosine supports the coverage, from the upper one on it is
/// evidence by itself. A model that does not know the language gives high cosines to any two texts in it.
const fn cosines(openai: bool, knows_language: bool) -> (f32, f32) {
    match (openai, knows_language) {
        (true, true) => (0.25, 0.42),
        (false, true) => (0.30, 0.50),
        (_, false) => (0.40, 0.65),
    }
}

/// Whether this chunk is evidence that the collection contains an answer.
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
    fn irrelevant_chunks_are_not_evidence() {
        assert!(!is_answerable(&hit(0.2, None), None, true));
        assert!(!is_answerable(&hit(0.2, Some(0.2)), Some("m"), true));
        assert!(is_answerable(&hit(0.9, None), None, true));
        assert!(is_answerable(&hit(0.0, Some(0.7)), Some("m"), true));
        assert!(is_answerable(&hit(0.35, Some(0.35)), Some("m"), true));
        assert!(is_answerable(&hit(0.0, Some(0.45)), Some("text-embedding-3-small"), true));
        assert!(!is_answerable(&hit(0.0, Some(0.55)), Some("m"), false));
    }
}
