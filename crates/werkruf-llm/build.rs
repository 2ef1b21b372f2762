//! Compresses the vocabularies that `src/vocabulary.rs` loads. tiktoken-rs has them as text of five megabytes.

use std::collections::HashMap;
use std::io::{Error, Result, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use tiktoken_rs::{CoreBPE, Rank};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("cargo names no OUT_DIR"))?;
    write(&tiktoken_rs::o200k_base().map_err(Error::other)?, &Path::new(&out).join("o200k"))?;
    write(&tiktoken_rs::cl100k_base().map_err(Error::other)?, &Path::new(&out).join("cl100k"))
}

/// Writes the 256 tokens of one byte, and for each further token the ranks of the two tokens that it was merged from. That takes two thirds of the
/// space of the text. The six bytes of the pairs are written one after the other, because equal ones then stand together.
fn write(vocabulary: &CoreBPE, path: &Path) -> Result<()> {
    let tokens: Vec<Vec<u8>> = (0..Rank::MAX).map_while(|rank| vocabulary.decode_bytes(&[rank]).ok()).collect();
    let ranks: HashMap<&[u8], usize> = tokens.iter().enumerate().map(|(rank, token)| (token.as_slice(), rank)).collect();
    let (bytes, merged) = tokens.split_at_checked(256).ok_or_else(|| Error::other("a vocabulary has fewer than 256 tokens"))?;
    let pairs = merged.iter().zip(256..).map(|(token, rank)| pair(token, rank, &ranks)).collect::<Result<Vec<_>>>()?;
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&u32::try_from(pairs.len()).map_err(Error::other)?.to_le_bytes())?;
    encoder.write_all(&bytes.concat())?;
    for byte in 0..3 {
        encoder.write_all(&pairs.iter().map(|(left, _)| left.to_le_bytes()[byte]).collect::<Vec<u8>>())?;
        encoder.write_all(&pairs.iter().map(|(_, right)| right.to_le_bytes()[byte]).collect::<Vec<u8>>())?;
    }
    std::fs::write(path, encoder.finish()?)
}

/// The two tokens that remain of a token when it is merged with the ranks before its own.
fn pair(token: &[u8], rank: usize, ranks: &HashMap<&[u8], usize>) -> Result<(u32, u32)> {
    let mut ends: Vec<usize> = (0..=token.len()).collect();
    while ends.len() > 3 {
        let merge = |at: usize| ranks.get(&token[ends[at]..ends[at + 2]]).filter(|found| **found < rank).map(|found| (*found, at));
        let (_, at) = (0..ends.len() - 2).filter_map(merge).min().ok_or_else(|| Error::other("a token has no pair"))?;
        ends.remove(at + 1);
    }
    let rank_of =
        |part: &[u8]| ranks.get(part).and_then(|rank| u32::try_from(*rank).ok()).ok_or_else(|| Error::other("a token has no pair"));
    Ok((rank_of(&token[..ends[1]])?, rank_of(&token[ends[1]..])?))
}
