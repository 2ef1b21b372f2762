//! Finds files and reads them as documents.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::error::CliError;
use crate::reader::{MAX_FILE_BYTES, Reader, ReaderError};

/// The files to read, sorted, and the paths that were skipped.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    pub(super) files: Vec<PathBuf>,
    pub(super) skipped: Vec<String>,
}

fn is_readable(path: &Path) -> bool {
    Reader::reads(&path.to_string_lossy())
}

/// Finds files, also in folders. A file of an unknown kind is reported as skipped.
pub(super) fn find(paths: &[PathBuf]) -> Result<FoundFiles, CliError> {
    let mut found = FoundFiles::default();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
        if metadata.is_dir() {
            walk(path, &mut found);
        } else {
            found.take(path.clone());
        }
    }
    found.skipped.sort_unstable();
    found.skipped.dedup();
    found.files.sort_unstable();
    found.files.dedup();
    Ok(found)
}

impl FoundFiles {
    /// A file that is to be read, or is reported because of its kind.
    fn take(&mut self, path: PathBuf) {
        if is_readable(&path) {
            self.files.push(path);
        } else {
            self.skipped.push(format!("{}: only text, Markdown, HTML, PDF, DOCX, XLSX and CSV are read", path.display()));
        }
    }
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
        } else if metadata.is_file() {
            found.take(path);
        }
    }
}

/// Reads a file as a document of the API.
pub(super) async fn read(reader: &Reader, path: &Path) -> Result<Value, ReaderError> {
    let unreadable = |error: std::io::Error| ReaderError::Unreadable(error.to_string());
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE_BYTES as u64 {
        return Err(ReaderError::Unreadable(format!("it is larger than {} MiB; split it", MAX_FILE_BYTES >> 20)));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let name = path.to_string_lossy();
    let file = reader.read(&name, &bytes).await?;
    let id = name.trim_start_matches("./").to_owned();
    Ok(json!({"id": id, "title": file.title, "text": file.text, "metadata": {"path": name}}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ReaderConfig;

    #[tokio::test]
    async fn folders_are_walked_in_order_and_other_files_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        for (name, text) in [("z.md", "# Title\n\nText"), ("b/a.txt", "Plain"), (".hidden.md", "x"), ("c.bin", "x"), ("d.pdf", "x")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let found = find(&[folder.path().to_owned()]).unwrap();
        let names: Vec<_> =
            found.files.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["b/a.txt", "d.pdf", "z.md"]);
        let binary = folder.path().join("c.bin");
        let reason = format!("{}: only text, Markdown, HTML, PDF, DOCX, XLSX and CSV are read", binary.display());
        assert_eq!(found.skipped, std::slice::from_ref(&reason), "hidden files are no documents");
        let unknown = find(&[binary]).unwrap();
        assert_eq!((unknown.files.len(), unknown.skipped), (0, vec![reason]));
        let reader = Reader::new(&ReaderConfig { program: Some(PathBuf::from("/no/such/program")), sandbox: true });
        let document = read(&reader, &folder.path().join("z.md")).await.unwrap();
        assert_eq!((document["title"].as_str(), document["text"].as_str()), (Some("Title"), Some("# Title\n\nText")));
        assert_eq!(read(&reader, &folder.path().join("d.pdf")).await.unwrap_err().code(), "reader_missing");
        assert!(find(&[folder.path().join("none")]).is_err());
    }
}
