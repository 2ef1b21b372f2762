//! Counts the tokens of texts as OpenAI's newest models do; other models count slightly differently.
//!
//! The vocabulary takes a second and some memory to load, so it is loaded on first use, on a blocking thread.

/// Counting takes more than linear time for text without word boundaries, so long texts are counted in pieces. The count may be off by
/// one token per boundary.
const PIECE: usize = 8 * 1024;

/// The token count of each text; `None` if counting failed and the caller must estimate.
pub async fn count_tokens(texts: Vec<String>) -> Option<Vec<u64>> {
    let counted = tokio::task::spawn_blocking(move || {
        let vocabulary = tiktoken_rs::o200k_base_singleton();
        let count = |piece: &str| u64::try_from(vocabulary.encode_ordinary(piece).len()).unwrap_or(u64::MAX);
        texts.iter().map(|text| pieces(text).map(count).sum()).collect()
    });
    counted.await.inspect_err(|error| tracing::warn!(%error, "tokens could not be counted")).ok()
}

/// The texts of lists of tokens in the encoding of OpenAI's embedding models; `None` where a list is no text.
pub async fn decode_embedding_tokens(lists: Vec<Vec<u32>>) -> Option<Vec<String>> {
    let decoded = tokio::task::spawn_blocking(move || {
        let vocabulary = tiktoken_rs::cl100k_base_singleton();
        lists.iter().map(|tokens| vocabulary.decode(tokens).ok()).collect()
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
    use super::{PIECE, count_tokens, decode_embedding_tokens, pieces};

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
}
