//! Compresses the vocabularies that `src/vocabulary.rs` loads. tiktoken-rs has them as text of five megabytes.

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

/// Writes the tokens in the order of their ranks, each after its length.
fn write(vocabulary: &CoreBPE, path: &Path) -> Result<()> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    for rank in 0..Rank::MAX {
        let Ok(token) = vocabulary.decode_bytes(&[rank]) else { break };
        encoder.write_all(&[u8::try_from(token.len()).map_err(Error::other)?])?;
        encoder.write_all(&token)?;
    }
    std::fs::write(path, encoder.finish()?)
}
