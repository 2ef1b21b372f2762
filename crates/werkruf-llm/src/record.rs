//! Recordings of responses for `wire inspect`: one file per request with the bytes of the response, keys redacted.
//!
//! Operators use recordings to examine a misbehaving server. If a recording cannot be written, the answer continues and a warning is logged.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::secrets::Secrets;

/// How many file names are tried; other processes may record into the same folder.
const MAX_NAMES: u32 = 1000;

/// The folder for recordings.
#[derive(Debug)]
pub(crate) struct Recordings {
    folder: PathBuf,
    api: &'static str,
    next: AtomicU64,
}

impl Recordings {
    /// Records into this folder, which is created with the first recording.
    pub(crate) const fn new(folder: PathBuf, api: &'static str) -> Self {
        Self { folder, api, next: AtomicU64::new(1) }
    }

    /// Creates a file; logs a warning and returns `None` if that fails.
    pub(crate) fn start(&self, secrets: &Secrets) -> Option<Recording> {
        match self.create() {
            Ok(file) => Some(Recording { file, pending: Vec::new(), secrets: secrets.clone() }),
            Err(error) => {
                tracing::warn!(folder = %self.folder.display(), %error, "the response is not recorded");
                None
            }
        }
    }

    fn create(&self) -> std::io::Result<File> {
        std::fs::create_dir_all(&self.folder)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        // The file contains user data.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let process = std::process::id();
        for _ in 0..MAX_NAMES {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match options.open(self.folder.join(format!("{}-{process}-{number:06}.sse", self.api))) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                opened => return opened,
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// The recording of one response. Pending bytes are written on drop.
#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    /// Bytes that may be the start of a key.
    pending: Vec<u8>,
    secrets: Secrets,
}

impl Recording {
    /// Adds received bytes. The blocking write goes to the operating system's cache, which is fast enough for a diagnostic feature.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        self.secrets.redact_bytes(&mut self.pending);
        let ready = self.pending.len() - self.secrets.partial_key_length(&self.pending);
        self.flush(ready);
    }

    fn flush(&mut self, bytes: usize) {
        if let Err(error) = self.file.write_all(&self.pending[..bytes]) {
            tracing::warn!(%error, "the recording of a response is incomplete");
        }
        self.pending.drain(..bytes);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.flush(self.pending.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(pieces: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let recordings = Recordings::new(folder.path().join("wire"), "chat");
        let secrets = Secrets::new(Some(&"sk-secret".into()), &[("x-key".to_owned(), "Bearer other-key".into())]);
        let mut recording = recordings.start(&secrets).unwrap();
        for piece in pieces {
            recording.write(piece.as_bytes());
        }
        drop(recording);
        let files: Vec<PathBuf> = std::fs::read_dir(folder.path().join("wire")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1);
        std::fs::read_to_string(&files[0]).unwrap()
    }

    #[test]
    fn keys_are_redacted_across_chunk_boundaries() {
        assert_eq!(recorded(&["data: sk-sec", "ret and oth", "er", "-key!\n"]), "data: [redacted] and [redacted]!\n");
        assert_eq!(recorded(&["s", "k", "-", "secret", "sk-secret"]), "[redacted][redacted]");
        assert_eq!(recorded(&["almost sk-secr"]), "almost sk-secr");
    }

    #[test]
    fn every_response_has_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            // A second process would also count from one.
            let recordings = Recordings::new(folder.path().to_owned(), "responses");
            recordings.start(&Secrets::default()).unwrap().write(b"x");
            recordings.start(&Secrets::default()).unwrap().write(b"x");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
