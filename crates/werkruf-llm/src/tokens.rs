//! Counts the tokens of texts as OpenAI's newest models do; other models count slightly differently.
//!
//! A vocabulary takes a second and some memory to load, so it is loaded on first use, on a blocking thread. Most of a request was in the request
//! before it (instructions, tools, history), so the counts of its sections are kept.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tiktoken_rs::CoreBPE;

use crate::vocabulary::{CL100K, O200K};

/// Counting takes more than linear time for text without word boundaries, so long texts are counted in pieces. The count may be off by
/// one token per boundary.
const PIECE: usize = 8 * 1024;
/// Where one element of a JSON list ends and the next begins: a message or a tool of an encoded request.
const BETWEEN_OBJECTS: &str = "},{";
/// Counting a shorter section is as fast as finding its count.
const SHORTEST_KEPT: usize = 64;
/// The number of kept counts; with more, all are counted again.
const MOST_KEPT: usize = 16 * 1024;

/// The counts of sections, by their digests.
static KEPT: LazyLock<Mutex<HashMap<[u8; 32], u64>>> = LazyLock::new(Mutex::default);

/// The token count of each text; `None` if counting failed and the caller must estimate.
pub async fn count_tokens(texts: Vec<String>) -> Option<Vec<u64>> {
    let counted = tokio::task::spawn_blocking(move || {
        let vocabulary = O200K.as_ref()?;
        Some(texts.iter().map(|text| sections(text).map(|section| kept_count(vocabulary, section)).sum()).collect())
    });
    counted.await.inspect_err(|error| tracing::warn!(%error, "tokens could not be counted")).ok().flatten()
}

fn kept_count(vocabulary: &CoreBPE, section: &str) -> u64 {
    if section.len() < SHORTEST_KEPT {
        return count(vocabulary, section);
    }
    let digest = <[u8; 32]>::from(Sha256::digest(section));
    let known = KEPT.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).copied();
    known.unwrap_or_else(|| {
        let counted = count(vocabulary, section);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(digest, counted);
        counted
    })
}

fn count(vocabulary: &CoreBPE, section: &str) -> u64 {
    pieces(section).map(|piece| u64::try_from(vocabulary.encode_ordinary(piece).len()).unwrap_or(u64::MAX)).sum()
}

/// The text in sections that are the same wherever they stand.
fn sections(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = text.find(BETWEEN_OBJECTS).map_or(text.len(), |at| at + 1);
        let (section, rest) = text.split_at(end);
        text = rest;
        (!section.is_empty()).then_some(section)
    })
}

/// The texts of lists of tokens in the encoding of OpenAI's embedding models; `None` where a list is no text.
pub async fn decode_embedding_tokens(lists: Vec<Vec<u32>>) -> Option<Vec<String>> {
    let decoded = tokio::task::spawn_blocking(move || {
        let text = |tokens: &Vec<u32>| {
            let bytes: Option<Vec<&[u8]>> = tokens.iter().map(|rank| Some(CL100K.get(usize::try_from(*rank).ok()?)?.as_slice())).collect();
            String::from_utf8(bytes?.concat()).ok()
        };
        lists.iter().map(text).collect()
    });
    decoded.await.inspect_err(|error| tracing::warn!(%error, "tokens could not be decoded")).ok().flatten()
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::{PIECE, count_tokens, decode_embedding_tokens, pieces, sections};

    #[tokio::test]
    async fn tokens_of_embedding_models_are_decoded() {
        let decoded = decode_embedding_tokens(vec![vec![15339, 1917], Vec::new()]).await;
        assert_eq!(decoded, Some(vec!["hello world".to_owned(), String::new()]));
        assert_eq!(decode_embedding_tokens(vec![vec![u32::MAX]]).await, None);
    }

    #[tokio::test]
    async fn token_counts_match_the_models() {
        let long = "a".repeat(3 * PIECE);
        let counted = count_tokens(vec!["hello world".into(), String::new(), "Grüße aus 東京".into(), long.clone()]).await.unwrap();
        assert_eq!(counted[..3], [2, 0, 5]);
        assert!(counted[3] > 1000 && counted[3] < u64::try_from(PIECE).unwrap(), "{counted:?}");
        assert_eq!(pieces(&long).collect::<String>(), long);
        let odd = "東".repeat(PIECE);
        assert_eq!(pieces(&odd).collect::<String>(), odd, "no character is cut");
    }

    #[tokio::test]
    async fn a_section_counts_the_same_in_every_request() {
        let tool = format!("{{\"name\":\"{}\"}}", "tool ".repeat(40));
        let first = format!("[{{\"a\":1}},{tool}]");
        let second = format!("[{{\"b\":\"東京\"}},{{}},{tool},{{\"c\":2}}]");
        assert_eq!(sections(&second).collect::<String>(), second);
        assert_eq!(sections(&second).nth(2), Some(format!(",{tool}").as_str()));
        let counted = count_tokens(vec![first.clone(), second.clone()]).await.unwrap();
        assert_eq!(count_tokens(vec![first.clone(), second.clone()]).await.unwrap(), counted, "kept");
        for (text, sum) in [(first, counted[0]), (second, counted[1])] {
            let whole = super::count(crate::vocabulary::O200K.as_ref().unwrap(), &text);
            assert!((whole..=whole + 3).contains(&sum), "{sum} for {whole}: never less, and one more at each boundary at most");
        }
    }
}
