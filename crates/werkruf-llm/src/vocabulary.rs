//! The vocabularies of OpenAI's tokenizers, as `build.rs` has compressed them.

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

fn tokens(compressed: &[u8]) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    // The build of this program compressed them.
    let _ = DeflateDecoder::new(compressed).read_to_end(&mut bytes);
    let mut rest = bytes.as_slice();
    let next = || {
        let (length, after) = rest.split_first()?;
        let (token, after) = after.split_at_checked(usize::from(*length))?;
        rest = after;
        Some(token.to_vec())
    };
    std::iter::from_fn(next).collect()
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
