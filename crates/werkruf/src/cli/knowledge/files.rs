//! Files as documents.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{html, pdf};
use crate::cli::error::CliError;

/// More text is no document; the API takes 16 MiB at once.
pub(super) const LARGEST_TEXT: u64 = 12 * 1024 * 1024;

/// What there is to read, in a fixed order, and what there is not.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<PathBuf>,
    pub(super) skipped: Vec<String>,
}

/// The kinds that can be read.
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

/// Walks folders; a file that was named and cannot be read is told, one that lies beside others is passed over.
pub(super) fn find(paths: &[PathBuf]) -> Result<Found, CliError> {
    let mut found = Found::default();
    for path in paths {
        let about = std::fs::metadata(path).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
        if about.is_dir() {
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

fn walk(folder: &Path, found: &mut Found) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return found.skipped.push(format!("{}: {error}", folder.display())),
    };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        // A link may lead round in a circle; a hidden file is no document.
        let Ok(about) = entry.file_type() else { continue };
        if name.to_string_lossy().starts_with('.') || about.is_symlink() {
            continue;
        }
        if about.is_dir() {
            walk(&path, found);
        } else if kind(&path).is_some() {
            found.files.push(path);
        }
    }
}

/// A file as the API takes it. A PDF is read by `program`, which is this binary.
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
        return Err("it holds no text".to_owned());
    }
    let first_heading = || text.lines().find_map(|line| line.strip_prefix("# ")).map(|heading| heading.trim().to_owned());
    let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let title = title.or_else(first_heading).unwrap_or_else(stem);
    let id = path.to_string_lossy().trim_start_matches("./").to_owned();
    Ok(json!({"id": id, "title": title, "text": text, "metadata": {"path": path.to_string_lossy()}}))
}

fn plain(path: &Path) -> Result<String, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if about.len() > LARGEST_TEXT {
        return Err(format!("it is larger than {} MiB; split it", LARGEST_TEXT >> 20));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8; save it as UTF-8".to_owned())?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_are_walked_in_order_and_strangers_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        for (name, text) in [("z.md", "# Title\n\nText"), ("b/a.txt", "Plain"), (".hidden.md", "x"), ("c.bin", "x"), ("d.pdf", "x")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let found = find(&[folder.path().to_owned()]).unwrap();
        let names: Vec<_> =
            found.files.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["b/a.txt", "d.pdf", "z.md"]);
        assert!(found.skipped.is_empty(), "a stranger in a folder is nobody's mistake");
        let stranger = find(&[folder.path().join("c.bin")]).unwrap();
        assert_eq!((stranger.files.len(), stranger.skipped.len()), (0, 1), "one that was named is told");
        let nobody = Path::new("no-program");
        let document = read(nobody, &folder.path().join("z.md")).await.unwrap();
        assert_eq!((document["title"].as_str(), document["text"].as_str()), (Some("Title"), Some("# Title\n\nText")));
        assert_eq!(read(nobody, &folder.path().join("b/a.txt")).await.unwrap()["title"], "a");
        assert!(find(&[folder.path().join("none")]).is_err());
    }
}
