//! Turns files into text with the program `werkruf-reader`, one process per file.
//!
//! A file is untrusted input: reading one may crash, use all memory or never end. The program limits and confines itself; this module
//! bounds its time and its output, and how many run at once. Plain UTF-8 text needs no process.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::ReaderConfig;

/// The name of the program, beside this one.
const PROGRAM: &str = "werkruf-reader";
/// Larger files are refused. Pictures make a file large, not its text.
pub(crate) const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;
/// Longer texts are refused; the API accepts requests up to 16 MiB.
const MAX_TEXT_BYTES: usize = 12 * 1024 * 1024;
/// The output is text as JSON, in which every character may be escaped.
const MAX_OUTPUT_BYTES: u64 = 6 * MAX_TEXT_BYTES as u64 + 64 * 1024;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Each process may use 1 GiB.
const MAX_PROCESSES: usize = 4;
/// The most uploads that are read at once.
const MAX_UPLOADS: usize = 8;
/// The signal for a process that has used its processor time.
const SIGXCPU: i32 = 24;

/// The extensions of files that are text as they are.
const PLAIN: [&str; 5] = ["md", "markdown", "txt", "text", "rst"];
/// The extensions of the other files that can be read.
const CONVERTED: [&str; 8] = ["html", "htm", "xhtml", "pdf", "docx", "xlsx", "csv", "tsv"];

/// Why a file has no text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReaderError {
    #[error("{} cannot be started ({reason}); install it beside werkruf, or name it in WERKRUF_READER", program.display())]
    Missing { program: PathBuf, reason: String },
    #[error("{0}; use a kernel with Landlock, or set reader_sandbox = \"off\" in [knowledge]")]
    Sandbox(String),
    /// The text continues a sentence that names the file.
    #[error("{0}")]
    Unreadable(String),
}

impl ReaderError {
    /// The stable error code, for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "reader_missing",
            Self::Sandbox(_) => "reader_sandbox",
            Self::Unreadable(_) => "unreadable",
        }
    }

    fn unreadable(reason: impl Into<String>) -> Self {
        Self::Unreadable(reason.into())
    }
}

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileText {
    /// The title that the file names, else its first heading, else its name.
    pub(crate) title: String,
    pub(crate) text: String,
}

/// What the program writes.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready,
    Text { title: Option<String>, text: String },
    Error { code: String, message: String },
}

/// Starts the program.
pub(crate) struct Reader {
    program: PathBuf,
    sandbox: bool,
    timeout: Duration,
    processes: Semaphore,
    uploads: Arc<Semaphore>,
}

impl Reader {
    /// The reader that the configuration names. Its program is looked for when it is needed.
    pub(crate) fn new(config: &ReaderConfig) -> Self {
        let beside = || std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(PROGRAM)));
        let program = config.program.clone().or_else(beside).unwrap_or_else(|| PathBuf::from(PROGRAM));
        Self {
            program,
            sandbox: config.sandbox,
            timeout: TIMEOUT,
            processes: Semaphore::new(MAX_PROCESSES),
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
        }
    }

    /// A place for one upload until it is dropped; `None` where too many uploads are being read.
    pub(crate) fn accept_upload(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.uploads).try_acquire_owned().ok()
    }

    /// Whether a file with this name can be read.
    pub(crate) fn reads(name: &str) -> bool {
        let extension = extension(name);
        PLAIN.contains(&extension.as_str()) || CONVERTED.contains(&extension.as_str())
    }

    /// Whether reading a file with this name always needs the program.
    pub(crate) fn converts(name: &str) -> bool {
        CONVERTED.contains(&extension(name).as_str())
    }

    /// Checks that the program is there and can confine itself.
    pub(crate) async fn check(&self) -> Result<(), ReaderError> {
        let checked = self.run("--check", &[]).await.map_err(|error| match error {
            // No file is involved: the program itself does not work.
            ReaderError::Unreadable(reason) => ReaderError::Missing { program: self.program.clone(), reason },
            other => other,
        });
        match checked? {
            Answer::Ready | Answer::Text { .. } => Ok(()),
            Answer::Error { code, message } => Err(error(&code, message)),
        }
    }

    /// The text of the file with this name.
    pub(crate) async fn read(&self, name: &str, bytes: &[u8]) -> Result<FileText, ReaderError> {
        if !Self::reads(name) {
            return Err(ReaderError::unreadable("only text, Markdown, HTML, PDF, DOCX, XLSX and CSV are read"));
        }
        if bytes.len() > MAX_FILE_BYTES {
            return Err(ReaderError::unreadable(format!("it is larger than {} MiB; split it", MAX_FILE_BYTES >> 20)));
        }
        let extension = extension(name);
        let plain = if PLAIN.contains(&extension.as_str()) { plain_text(bytes) } else { None };
        let (title, text) = match plain {
            Some(text) => (None, text),
            None => match self.run(&extension, bytes).await? {
                Answer::Text { title, text } => (title, text),
                Answer::Error { code, message } => return Err(error(&code, message)),
                Answer::Ready => return Err(ReaderError::unreadable("reading it gave no answer; try again")),
            },
        };
        if text.len() > MAX_TEXT_BYTES {
            return Err(ReaderError::unreadable(format!("it contains more than {} MiB of text; split it", MAX_TEXT_BYTES >> 20)));
        }
        if text.trim().is_empty() {
            return Err(ReaderError::unreadable("it contains no text"));
        }
        let first_heading = || text.lines().find_map(|line| line.strip_prefix("# ")).map(|heading| heading.trim().to_owned());
        let stem = || Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let title = title.or_else(first_heading).unwrap_or_else(stem);
        Ok(FileText { title, text })
    }

    async fn run(&self, argument: &str, input: &[u8]) -> Result<Answer, ReaderError> {
        let _process = self.processes.acquire().await.map_err(|_| ReaderError::unreadable("the server is shutting down"))?;
        let mut child = Command::new(&self.program)
            .args(["--sandbox", if self.sandbox { "on" } else { "off" }, argument])
            // The process needs no secrets.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| ReaderError::Missing { program: self.program.clone(), reason: error.to_string() })?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut output = Vec::new();
        let write = async {
            if let Some(mut stdin) = stdin {
                // A process that ended early says why, or how it ended.
                let _ = stdin.write_all(input).await;
            }
        };
        let read = async {
            if let Some(stdout) = stdout {
                stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
            }
            std::io::Result::Ok(())
        };
        let ended = tokio::time::timeout(self.timeout, async {
            let ((), read) = tokio::join!(write, read);
            read?;
            child.wait().await
        });
        // On a timeout the child is dropped, which kills the process.
        let status = ended.await.map_err(|_| too_slow())?.map_err(|error| ReaderError::unreadable(error.to_string()))?;
        serde_json::from_slice(&output).map_err(|_| no_answer(status))
    }
}

fn extension(name: &str) -> String {
    Path::new(name).extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// UTF-8 without control characters; anything else is decoded by the program.
fn plain_text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = text.chars().all(|letter| !letter.is_control() || matches!(letter, '\n' | '\r' | '\t'));
    is_plain.then(|| text.strip_prefix('\u{feff}').unwrap_or(text).to_owned())
}

fn error(code: &str, message: String) -> ReaderError {
    if code == "reader_sandbox" { ReaderError::Sandbox(message) } else { ReaderError::Unreadable(message) }
}

fn too_slow() -> ReaderError {
    ReaderError::unreadable("reading it takes too long; split it, or save it again (a PDF with `qpdf IN.pdf OUT.pdf`)")
}

/// The process ended without a complete answer.
fn no_answer(status: ExitStatus) -> ReaderError {
    use std::os::unix::process::ExitStatusExt;
    if status.signal() == Some(SIGXCPU) {
        return too_slow();
    }
    ReaderError::unreadable("reading it takes too much memory, or crashed; split it, or save it again (a PDF with `qpdf IN.pdf OUT.pdf`)")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command as Program;

    use super::*;

    /// A reader whose program is this script. Another process writes the script: a process that another test starts meanwhile would inherit
    /// a descriptor of this one, and a file that is open for writing cannot be executed.
    fn scripted(folder: &Path, script: &str) -> Reader {
        let program = folder.join("reader");
        let write = r#"/bin/rm -f "$0" && /bin/cat > "$0" && /bin/chmod 700 "$0""#;
        let mut writer = Program::new("/bin/sh").args(["-c", write]).arg(&program).stdin(Stdio::piped()).spawn().unwrap();
        writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        // Long enough for a busy machine; only the sleeping script uses the whole time.
        let timeout = Duration::from_secs(if script.contains("sleep") { 1 } else { 60 });
        Reader { timeout, ..Reader::new(&ReaderConfig { program: Some(program), sandbox: false }) }
    }

    #[tokio::test]
    async fn every_failure_of_the_program_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let working =
            scripted(folder.path(), r##"printf '{"text":{"kind":"pdf","title":null,"text":"# Kopf\\n%s %s"}}' "$*" "$(/bin/cat)""##);
        let read = working.read("Preise.PDF", b"content").await.unwrap();
        assert_eq!(read, FileText { title: "Kopf".to_owned(), text: "# Kopf\n--sandbox off pdf content".to_owned() });
        let refused = r#"printf '{"error":{"code":"reader_sandbox","message":"no Landlock"}}'"#;
        for (script, code, reason) in [
            ("kill -9 $$", "unreadable", "memory"),
            ("kill -XCPU $$", "unreadable", "too long"),
            ("echo '{\"text\":'; exit 101", "unreadable", "memory"),
            ("exec /bin/cat /dev/zero", "unreadable", "memory"),
            ("exec /bin/sleep 600", "unreadable", "too long"),
            (r#"printf '{"error":{"code":"unreadable","message":"it is damaged"}}'"#, "unreadable", "it is damaged"),
            (r#"printf '{"text":{"title":null,"text":" "}}'"#, "unreadable", "no text"),
            (refused, "reader_sandbox", "reader_sandbox = \"off\""),
        ] {
            let error = scripted(folder.path(), script).read("a.pdf", b"x").await.unwrap_err();
            assert!(error.code() == code && error.to_string().contains(reason), "{script}: {error}");
        }
        assert_eq!(scripted(folder.path(), refused).check().await.unwrap_err().code(), "reader_sandbox");
        assert!(scripted(folder.path(), "printf '\"ready\"'").check().await.is_ok());
    }

    #[tokio::test]
    async fn plain_text_needs_no_program() {
        let missing = Reader::new(&ReaderConfig { program: Some(PathBuf::from("/no/such/program")), sandbox: true });
        let text = missing.read("docs/a.md", "\u{feff}# Titel\n\nGrüße".as_bytes()).await.unwrap();
        assert_eq!(text, FileText { title: "Titel".to_owned(), text: "# Titel\n\nGrüße".to_owned() });
        assert_eq!(missing.read("docs/b.txt", b"Plain\r\n").await.unwrap().title, "b");
        for (name, bytes, code) in [
            ("a.pdf", &b"%PDF"[..], "reader_missing"),
            ("a.txt", b"Gr\xFC\xDFe", "reader_missing"),
            ("a.txt", b"a\0b\0", "reader_missing"),
            ("a.exe", b"x", "unreadable"),
            ("a.md", b"  ", "unreadable"),
        ] {
            assert_eq!(missing.read(name, bytes).await.unwrap_err().code(), code, "{name}");
        }
        assert_eq!(missing.check().await.unwrap_err().code(), "reader_missing");
        let large = vec![b'x'; MAX_FILE_BYTES + 1];
        assert!(missing.read("a.txt", &large).await.unwrap_err().to_string().contains("larger than 64 MiB"));
    }
}
