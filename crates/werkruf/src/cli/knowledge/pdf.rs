//! Extracts the text of a PDF file.
//!
//! A PDF is untrusted input: reading one may crash, use all memory or never end. So a second process of this binary reads it
//! (`werkruf knowledge read-pdf`), with limits on memory and time. If that process fails, the error says what to do with the
//! file, and the other files are still read.

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

use super::files::MAX_TEXT_BYTES;

/// Pictures make a PDF large, not its text.
pub(super) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The memory limit of the reading process, the file itself included.
const MAX_MEMORY: u64 = 1024 * 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(120);
/// The output is text as JSON, in which every character may be escaped.
const MAX_OUTPUT_BYTES: u64 = 6 * MAX_TEXT_BYTES + 64 * 1024;

/// The text of a PDF.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PdfText {
    /// The title in the metadata.
    pub(super) title: Option<String>,
    /// Paragraphs with a blank line between them. A paragraph never spans two pages.
    pub(super) text: String,
}

/// Why no text could be read. The messages say what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PdfFault {
    #[error("{0}")]
    Unreadable(String),
    #[error("it is larger than {} MiB; split it, or make its pictures smaller", MAX_FILE_BYTES >> 20)]
    TooLarge,
    #[error("it is not a PDF, or damaged; open it, save it again (or `qpdf IN.pdf OUT.pdf`) and add that")]
    Broken,
    #[error("its end is missing; copy or download it again")]
    CutOff,
    #[error("it is protected by a password; save it without one (or `qpdf --decrypt --password=… IN.pdf OUT.pdf`) and add that")]
    Encrypted,
    #[error("its pages are pictures without text; run text recognition on it (such as `ocrmypdf IN.pdf OUT.pdf`) and add that")]
    NoText,
    #[error("its fonts do not say which characters they draw; run text recognition on it (such as `ocrmypdf --force-ocr IN.pdf OUT.pdf`)")]
    NoLetters,
    #[error("it contains more than {} MiB of text; split it", MAX_TEXT_BYTES >> 20)]
    TooMuchText,
    #[error("reading it takes more than {} seconds; split it, or save it again (`qpdf IN.pdf OUT.pdf`)", TIMEOUT.as_secs())]
    TooSlow,
    #[error("reading it takes more than {} MiB of memory, or crashed; save it again (`qpdf IN.pdf OUT.pdf`) or split it", MAX_MEMORY >> 20)]
    TooHeavy,
}

/// The output of the reading process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReaderOutput {
    Text(PdfText),
    Fault(PdfFault),
}

/// Reads a PDF in a process of `program`, which is this binary.
pub(super) async fn text(program: &Path, file: &Path) -> Result<PdfText, PdfFault> {
    text_within(TIMEOUT, program, file).await
}

async fn text_within(timeout: Duration, program: &Path, file: &Path) -> Result<PdfText, PdfFault> {
    let unreadable = |error: std::io::Error| PdfFault::Unreadable(error.to_string());
    if std::fs::metadata(file).map_err(unreadable)?.len() > MAX_FILE_BYTES {
        return Err(PdfFault::TooLarge);
    }
    let mut child = Command::new(program)
        .args(["knowledge", "read-pdf", "--"])
        .arg(file)
        // The process needs no secrets.
        .env_clear()
        // In KiB. Otherwise the allocator reserves 1 GiB at once, which would count against the memory limit.
        .env("MIMALLOC_ARENA_RESERVE", "32768")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(unreadable)?;
    let mut output = Vec::new();
    let reading = async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
        }
        child.wait().await
    };
    // On a timeout the future drops the child, which kills the process.
    let Ok(ended) = tokio::time::timeout(timeout, reading).await else { return Err(PdfFault::TooSlow) };
    ended.map_err(unreadable)?;
    match serde_json::from_slice(&output) {
        Ok(ReaderOutput::Text(text)) => Ok(text),
        Ok(ReaderOutput::Fault(fault)) => Err(fault),
        // The process ended without complete output.
        Err(_) => Err(PdfFault::TooHeavy),
    }
}

/// The main function of the reading process: its output as JSON.
pub(super) fn reader_output(file: &Path) -> String {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = |value| Rlimit { current: Some(value), maximum: Some(value) };
        // If the limits cannot be set, those of the system apply. The process may be killed on purpose, so it writes no core dump.
        let _ = setrlimit(Resource::Data, limit(MAX_MEMORY));
        let _ = setrlimit(Resource::Core, limit(0));
    }
    let read = std::fs::read(file).map_err(|error| PdfFault::Unreadable(error.to_string())).and_then(pages::read);
    let read = read.map_or_else(ReaderOutput::Fault, ReaderOutput::Text);
    serde_json::to_string(&read).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Runs a reading process that executes this script.
    async fn with_reader(script: &str, size: u64) -> Result<PdfText, PdfFault> {
        let folder = tempfile::tempdir().unwrap();
        let (program, file) = (folder.path().join("reader"), folder.path().join("a.pdf"));
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::File::create(&file).unwrap().set_len(size).unwrap();
        // Long enough for a busy machine; only the sleeping script uses the whole time.
        text_within(Duration::from_secs(if script.contains("sleep") { 1 } else { 60 }), &program, &file).await
    }

    #[tokio::test]
    async fn every_failure_of_the_reader_is_reported() {
        let working = r#"printf '{"text":{"title":null,"text":"%s"}}' "$1 $2""#;
        assert_eq!(with_reader(working, 9).await.unwrap().text, "knowledge read-pdf");
        for (script, fault) in [
            ("kill -9 $$", PdfFault::TooHeavy),
            ("echo '{\"text\":'; exit 101", PdfFault::TooHeavy),
            ("exec cat /dev/zero", PdfFault::TooHeavy),
            ("exec sleep 600", PdfFault::TooSlow),
            (r#"echo '{"fault":"no_text"}'"#, PdfFault::NoText),
        ] {
            assert_eq!(with_reader(script, 9).await.unwrap_err(), fault, "{script}");
        }
        assert_eq!(with_reader(working, MAX_FILE_BYTES + 1).await.unwrap_err(), PdfFault::TooLarge);
        let missing = text(Path::new("/no/such/program"), Path::new("/no/such/file.pdf")).await;
        assert!(matches!(missing, Err(PdfFault::Unreadable(_))), "{missing:?}");
    }
}
