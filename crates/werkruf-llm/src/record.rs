//! Recordings of answers, for `wire inspect`: one file per request, nothing but the bytes of the answer, keys taken out.
//!
//! A recording is for whoever looks into a misbehaving server. If it cannot be written the answer goes on, and the log says so.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::secrets::Secrets;

/// Attempts to find a name nobody has: other processes may record into the same folder.
const MOST_NAMES: u32 = 1000;

/// A folder that answers are recorded in.
#[derive(Debug)]
pub(crate) struct Recordings {
    folder: PathBuf,
    api: &'static str,
    next: AtomicU64,
}

impl Recordings {
    /// Into this folder, which is made when the first answer comes.
    pub(crate) const fn new(folder: PathBuf, api: &'static str) -> Self {
        Self { folder, api, next: AtomicU64::new(1) }
    }

    /// Begins a file. `None`, and a word in the log, where that cannot be.
    pub(crate) fn begin(&self, secrets: &Secrets) -> Option<Recording> {
        match self.create() {
            Ok(file) => Some(Recording { file, held: Vec::new(), secrets: secrets.clone() }),
            Err(error) => {
                tracing::warn!(folder = %self.folder.display(), %error, "the answer is not recorded");
                None
            }
        }
    }

    fn create(&self) -> std::io::Result<File> {
        std::fs::create_dir_all(&self.folder)?;
        let mut how = OpenOptions::new();
        how.write(true).create_new(true);
        // People's words are in it.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut how, 0o600);
        let process = std::process::id();
        for _ in 0..MOST_NAMES {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match how.open(self.folder.join(format!("{}-{process}-{number:06}.sse", self.api))) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                opened => return opened,
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// One answer on its way into a file. What is held back is written when it is dropped.
#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    /// May be the beginning of a key.
    held: Vec<u8>,
    secrets: Secrets,
}

impl Recording {
    /// Adds bytes as they came. A piece goes to the system's cache, which is quick enough for somebody who looks into a fault.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        self.secrets.blot(&mut self.held);
        let ready = self.held.len() - self.secrets.held_back(&self.held);
        self.flush(ready);
    }

    fn flush(&mut self, bytes: usize) {
        if let Err(error) = self.file.write_all(&self.held[..bytes]) {
            tracing::warn!(%error, "the recording of an answer is not whole");
        }
        self.held.drain(..bytes);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.flush(self.held.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(pieces: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let recordings = Recordings::new(folder.path().join("wire"), "chat");
        let secrets = Secrets::new(Some(&"sk-secret".into()), &[("x-key".to_owned(), "Bearer other-key".into())]);
        let mut recording = recordings.begin(&secrets).unwrap();
        for piece in pieces {
            recording.write(piece.as_bytes());
        }
        drop(recording);
        let files: Vec<PathBuf> = std::fs::read_dir(folder.path().join("wire")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1);
        std::fs::read_to_string(&files[0]).unwrap()
    }

    #[test]
    fn keys_are_taken_out_however_they_were_cut() {
        assert_eq!(recorded(&["data: sk-sec", "ret and oth", "er", "-key!\n"]), "data: [redacted] and [redacted]!\n");
        assert_eq!(recorded(&["s", "k", "-", "secret", "sk-secret"]), "[redacted][redacted]");
        assert_eq!(recorded(&["almost sk-secr"]), "almost sk-secr");
    }

    #[test]
    fn every_answer_has_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            // A second process would count from one, too.
            let recordings = Recordings::new(folder.path().to_owned(), "responses");
            recordings.begin(&Secrets::default()).unwrap().write(b"x");
            recordings.begin(&Secrets::default()).unwrap().write(b"x");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
