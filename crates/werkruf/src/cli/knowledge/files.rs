//! Finds and reads files as documents.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{html, pdf};
use crate::cli::error::CliError;

/// Larger texts are refused; the API accepts requests up to 16 MiB.
pub(super) const MAX_TEXT_BYTES: u64 = 12 * 1024 * 1024;

/// The files to read, sorted, and the paths that were skipped.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    pub(super) files: Vec<PathBuf>,
    pub(super) skipped: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Html,
    Pdf,
}

fn kind(path: &Path) -> Option<Kind> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "md" | "markdown" | "txt" | "text" | "rst" => Some(Kind::Text),
        "html" | "htm" | "xhtml" => Some(Kind::Html),
        "pdf" => Some(Kind::Pdf),
        _ => None,
    }
}

/// Finds files, also in folders. A named file of an unknown kind is reported as skipped; such a file in a folder is ignored.
pub(super) fn find(paths: &[PathBuf]) -> Result<FoundFiles, CliError> {
    let mut found = FoundFiles::default();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
        if metadata.is_dir() {
            walk(path, &mut found);
        } else if kind(path).is_some() {
            found.files.push(path.clone());
        } else {
            found.skipped.push(format!("{}: only Markdown, text, HTML and PDF are read", path.display()));
        }
    }
    found.files.sort();
    found.files.dedup();
    Ok(found)
}

fn walk(folder: &Path, found: &mut FoundFiles) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return found.skipped.push(format!("{}: {error}", folder.display())),
    };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        // Links may form a cycle, and hidden files are not documents.
        let Ok(metadata) = entry.file_type() else { continue };
        if name.to_string_lossy().starts_with('.') || metadata.is_symlink() {
            continue;
        }
        if metadata.is_dir() {
            walk(&path, found);
        } else if kind(&path).is_some() {
            found.files.push(path);
        }
    }
}

/// Reads a file as a document of the API. `program`, this binary, reads PDFs in its own process.
pub(super) async fn read(program: &Path, path: &Path) -> Result<Value, String> {
    let (title, text) = match kind(path) {
        Some(Kind::Html) => html::text(&plain(path)?),
        Some(Kind::Pdf) => {
            let read = pdf::text(program, path).await.map_err(|fault| fault.to_string())?;
            (read.title, read.text)
        }
        Some(Kind::Text) | None => (None, plain(path)?),
    };
    if text.trim().is_empty() {
        return Err("it contains no text".to_owned());
    }
    let first_heading = || text.lines().find_map(|line| line.strip_prefix("# ")).map(|heading| heading.trim().to_owned());
    let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let title = title.or_else(first_heading).unwrap_or_else(stem);
    let id = path.to_string_lossy().trim_start_matches("./").to_owned();
    Ok(json!({"id": id, "title": title, "text": text, "metadata": {"path": path.to_string_lossy()}}))
}

fn plain(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.len() > MAX_TEXT_BYTES {
        return Err(format!("it is larger than {} MiB; split it", MAX_TEXT_BYTES >> 20));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8; save it as UTF-8".to_owned())?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_are_walked_in_order_and_other_files_ignored() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        for (name, text) in [("z.md", "# Title\n\nText"), ("b/a.txt", "Plain"), (".hidden.md", "x"), ("c.bin", "x"), ("d.pdf", "x")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let found = find(&[folder.path().to_owned()]).unwrap();
        let names: Vec<_> =
            found.files.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["b/a.txt", "d.pdf", "z.md"]);
        assert!(found.skipped.is_empty(), "an unknown file in a folder is ignored");
        let unknown = find(&[folder.path().join("c.bin")]).unwrap();
        assert_eq!((unknown.files.len(), unknown.skipped.len()), (0, 1), "a named one is reported");
        let no_program = Path::new("no-program");
        let document = read(no_program, &folder.path().join("z.md")).await.unwrap();
        assert_eq!((document["title"].as_str(), document["text"].as_str()), (Some("Title"), Some("# Title\n\nText")));
        assert_eq!(read(no_program, &folder.path().join("b/a.txt")).await.unwrap()["title"], "a");
        assert!(find(&[folder.path().join("none")]).is_err());
    }
}
