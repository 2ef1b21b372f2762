//! The text of a PDF file.
//!
//! A PDF is a program somebody else wrote: reading one may fail in every way a program can, also by eating all memory or never ending.
//! So a second process of this very binary reads it (`werkruf knowledge read-pdf`), within bounds of memory and time. Whatever becomes of
//! that process, the files after it are read, and the person is told what to do with this one.

mod joining;
mod layout;
mod page;
mod pages;
#[cfg(test)]
mod sample;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::files::LARGEST_TEXT;

/// Pictures make a PDF large, not its text.
pub(super) const LARGEST: u64 = 64 * 1024 * 1024;
/// What reading one may take of memory, the file itself included.
const MOST_MEMORY: u64 = 1024 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(120);
/// Text as JSON; every letter may be escaped.
const LONGEST_ANSWER: u64 = 6 * LARGEST_TEXT + 64 * 1024;

/// What a PDF says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PdfText {
    /// As its author named it.
    pub(super) title: Option<String>,
    /// Paragraphs with a blank line between them; a page ends one.
    pub(super) text: String,
}

/// Why there is no text, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PdfFault {
    #[error("{0}")]
    Unreadable(String),
    #[error("it is larger than {} MiB; split it, or make its pictures smaller", LARGEST >> 20)]
    TooLarge,
    #[error("it is no PDF, or a damaged one; open it, save it anew (or `qpdf IN.pdf OUT.pdf`) and add that")]
    Broken,
    #[error("its end is missing; fetch it again, it was not copied as a whole")]
    CutOff,
    #[error("it is protected by a password; save it without one (or `qpdf --decrypt --password=… IN.pdf OUT.pdf`) and add that")]
    Encrypted,
    #[error("its pages are pictures without text; let a text recognition read them (such as `ocrmypdf IN.pdf OUT.pdf`) and add that")]
    NoText,
    #[error("its fonts do not say which letters they draw; let a text recognition read it (such as `ocrmypdf --force-ocr IN.pdf OUT.pdf`)")]
    NoLetters,
    #[error("it holds more than {} MiB of text; split it", LARGEST_TEXT >> 20)]
    TooMuchText,
    #[error("reading it takes more than {} seconds; split it, or save it anew (`qpdf IN.pdf OUT.pdf`)", PATIENCE.as_secs())]
    TooSlow,
    #[error("reading it takes more than {} MiB of memory, or ended badly; save it anew (`qpdf IN.pdf OUT.pdf`) or split it", MOST_MEMORY >> 20)]
    TooHeavy,
}

/// What the reading process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Read {
    Text(PdfText),
    Fault(PdfFault),
}

/// Has `program`, this binary, read a PDF.
pub(super) async fn text(program: &Path, file: &Path) -> Result<PdfText, PdfFault> {
    text_within(PATIENCE, program, file).await
}

async fn text_within(patience: Duration, program: &Path, file: &Path) -> Result<PdfText, PdfFault> {
    let unreadable = |error: std::io::Error| PdfFault::Unreadable(error.to_string());
    if std::fs::metadata(file).map_err(unreadable)?.len() > LARGEST {
        return Err(PdfFault::TooLarge);
    }
    let mut child = Command::new(program)
        .args(["knowledge", "read-pdf", "--"])
        .arg(file)
        // It needs no secret, and its last words are for nobody.
        .env_clear()
        // In KiB. The allocator reserves a whole gibibyte at once otherwise, and the bound on memory would count it.
        .env("MIMALLOC_ARENA_RESERVE", "32768")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(unreadable)?;
    let mut answer = Vec::new();
    let listening = async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
        }
        child.wait().await
    };
    // Dropped with the child, which dies with it.
    let Ok(ended) = tokio::time::timeout(patience, listening).await else { return Err(PdfFault::TooSlow) };
    ended.map_err(unreadable)?;
    match serde_json::from_slice(&answer) {
        Ok(Read::Text(text)) => Ok(text),
        Ok(Read::Fault(fault)) => Err(fault),
        // It did not come to an answer.
        Err(_) => Err(PdfFault::TooHeavy),
    }
}

/// The reading process: its answer as JSON.
pub(super) fn answer(file: &Path) -> String {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let bound = |most| Rlimit { current: Some(most), maximum: Some(most) };
        // Where they cannot be set the machine's own limits hold. A process that is meant to die leaves no image of its memory.
        let _ = setrlimit(Resource::Data, bound(MOST_MEMORY));
        let _ = setrlimit(Resource::Core, bound(0));
    }
    let read = std::fs::read(file).map_err(|error| PdfFault::Unreadable(error.to_string())).and_then(pages::read);
    let read = read.map_or_else(Read::Fault, Read::Text);
    serde_json::to_string(&read).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What comes of a reading process that does this.
    async fn with_reader(script: &str, size: u64) -> Result<PdfText, PdfFault> {
        let folder = tempfile::tempdir().unwrap();
        let (program, file) = (folder.path().join("reader"), folder.path().join("a.pdf"));
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::File::create(&file).unwrap().set_len(size).unwrap();
        // Long enough for a busy machine; only one of the readers uses it up.
        text_within(Duration::from_secs(if script.contains("sleep") { 1 } else { 60 }), &program, &file).await
    }

    #[tokio::test]
    async fn whatever_becomes_of_the_reader_there_is_an_answer() {
        let said = r#"printf '{"text":{"title":null,"text":"%s"}}' "$1 $2""#;
        assert_eq!(with_reader(said, 9).await.unwrap().text, "knowledge read-pdf");
        for (script, fault) in [
            ("kill -9 $$", PdfFault::TooHeavy),
            ("echo '{\"text\":'; exit 101", PdfFault::TooHeavy),
            ("exec cat /dev/zero", PdfFault::TooHeavy),
            ("exec sleep 600", PdfFault::TooSlow),
            (r#"echo '{"fault":"no_text"}'"#, PdfFault::NoText),
        ] {
            assert_eq!(with_reader(script, 9).await.unwrap_err(), fault, "{script}");
        }
        assert_eq!(with_reader(said, LARGEST + 1).await.unwrap_err(), PdfFault::TooLarge);
        let nobody = text(Path::new("/no/such/program"), Path::new("/no/such/file.pdf")).await;
        assert!(matches!(nobody, Err(PdfFault::Unreadable(_))), "{nobody:?}");
    }
}
