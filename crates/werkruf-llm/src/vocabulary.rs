//! The vocabularies of OpenAI's tokenizers, as `build.rs` has compressed them: as pairs of tokens that are merged.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::DeflateDecoder;
use rustc_hash::FxHashMap;
use tiktoken_rs::{CoreBPE, O200K_BASE_PAT_STR, Rank};

/// The tokenizer of the newest models. It exists, unless the program is damaged.
pub(crate) static O200K: LazyLock<Option<CoreBPE>> = LazyLock::new(|| {
    let ranks = tokens(include_bytes!(concat!(env!("OUT_DIR"), "/o200k"))).into_iter().zip(0..).collect::<FxHashMap<Vec<u8>, Rank>>();
    CoreBPE::new(ranks, FxHashMap::default(), O200K_BASE_PAT_STR).ok()
});

/// The tokens of the embedding models, by rank.
pub(crate) static CL100K: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| tokens(include_bytes!(concat!(env!("OUT_DIR"), "/cl100k"))));

/// The tokens by rank: 256 of one byte each, then those that two earlier tokens make.
fn tokens(compressed: &[u8]) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    // The build of this program compressed them.
    let _ = DeflateDecoder::new(compressed).read_to_end(&mut bytes);
    read(&bytes).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (count, rest) = bytes.split_first_chunk()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let (single, pairs) = rest.split_at_checked(256)?;
    let mut tokens: Vec<Vec<u8>> = single.iter().map(|byte| vec![*byte]).collect();
    // The lowest bytes of all left and of all right ranks, then the middle and the highest ones.
    let rank = |pair: usize, side: usize| {
        let byte = |place: usize| pairs.get((2 * place + side) * count + pair).copied();
        usize::try_from(u32::from_le_bytes([byte(0)?, byte(1)?, byte(2)?, 0])).ok()
    };
    for pair in 0..count {
        let token = [tokens.get(rank(pair, 0)?)?.as_slice(), tokens.get(rank(pair, 1)?)?].concat();
        tokens.push(token);
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::{CL100K, O200K};

    #[test]
    fn the_vocabularies_are_those_of_the_tokenizer() {
        let (known, loaded) = (tiktoken_rs::o200k_base_singleton(), O200K.as_ref().unwrap());
        for text in ["hello world", "Grüße aus 東京", "{\"a\": [1, 22, 333]}", "a\n\n\tb's", "\u{1f600}\u{200d}"] {
            assert_eq!(loaded.encode_ordinary(text), known.encode_ordinary(text), "{text}");
        }
        let known = tiktoken_rs::cl100k_base_singleton();
        assert_eq!(CL100K.len(), 100_256);
        assert!(CL100K.iter().zip(0..).all(|(token, rank)| known.decode_bytes(&[rank]).ok().as_ref() == Some(token)));
    }
}
