//! Reads the files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A file with its path relative to the repository.
pub struct SourceFile {
    pub path: PathBuf,
    pub text: String,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files under a folder or at a path of the repository, sorted by path.
pub fn files(under: &str) -> Vec<SourceFile> {
    let mut paths = Vec::new();
    collect(&root().join(under), &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        // Binary files have no text to check.
        let text = String::from_utf8(fs::read(&path).unwrap()).ok()?;
        Some(SourceFile { path: path.strip_prefix(root()).unwrap().to_owned(), text })
    };
    paths.into_iter().filter_map(read).collect()
}

fn collect(path: &Path, paths: &mut Vec<PathBuf>) {
    if path.is_file() {
        paths.push(path.to_owned());
    } else if !path.ends_with("target") {
        fs::read_dir(path).unwrap().for_each(|entry| collect(&entry.unwrap().path(), paths));
    }
}

pub fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known))
}

/// The Rust files that are not tests.
pub fn product_sources() -> Vec<SourceFile> {
    let all = files("crates").into_iter().chain(files("bench"));
    all.filter(|file| has_extension(&file.path, &["rs"]) && !is_test(&file.path)).collect()
}

pub fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.to_string_lossy().ends_with("_tests.rs")
}

/// The rest of a line after its indent and visibility (`pub`, `pub(crate)`, `pub(in …)`).
pub fn without_visibility(line: &str) -> &str {
    let line = line.trim_start();
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(line, |(_, rest)| rest.trim_start()),
        Some(rest) if rest.starts_with(' ') => rest.trim_start(),
        _ => line,
    }
}
