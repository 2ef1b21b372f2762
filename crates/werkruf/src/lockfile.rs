//! `<db>.lock`: how commands on this machine find the running server, and prove that they may read its files.
//!
//! The file is not the lock itself; the store holds that. After a crash the file may be stale, so a reader checks that
//! the address answers before using it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockNote {
    /// An address this machine can connect to, such as `http://127.0.0.1:8080`.
    pub address: String,
    /// The operator's bearer token while this server runs.
    pub token: String,
    pub pid: u32,
    /// The SHA-256 of the server's certificate, if the address is `https`. Commands trust exactly this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

impl LockNote {
    /// Reads the file; `None` if it is missing or not valid.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

impl std::fmt::Debug for LockNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockNote").field("address", &self.address).field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// The written file. Dropping it removes the file.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    note: LockNote,
}

impl LockFile {
    /// Writes the file atomically, readable by its owner only.
    pub fn write(path: &Path, note: LockNote) -> io::Result<Self> {
        write(path, &note)?;
        Ok(Self { path: path.to_owned(), note })
    }

    /// Writes the file again after the server's certificate was replaced.
    pub fn set_certificate(&mut self, fingerprint: String) -> io::Result<()> {
        let note = LockNote { certificate: Some(fingerprint), ..self.note.clone() };
        write(&self.path, &note)?;
        self.note = note;
        Ok(())
    }
}

fn write(path: &Path, note: &LockNote) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", note.pid));
    let temporary = PathBuf::from(temporary);
    // A file left by a crashed server with the same process id would keep its own mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(note)?)?;
    fs::rename(&temporary, path)
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Another server may have replaced the file; that server's contents stay.
        if LockNote::read(&self.path).as_ref() == Some(&self.note) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The address a client on this machine uses for a server that listens here.
pub fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn note(pid: u32) -> LockNote {
        LockNote { address: "http://127.0.0.1:1".to_owned(), token: "wo_1".to_owned(), pid, certificate: None }
    }

    #[test]
    fn is_private_and_removed_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db.lock");
        let held = LockFile::write(&path, note(1)).unwrap();
        assert_eq!(LockNote::read(&path), Some(note(1)));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(held);
        assert!(!path.exists());
    }

    #[test]
    fn drop_leaves_the_file_of_a_newer_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db.lock");
        let old = LockFile::write(&path, note(1)).unwrap();
        let _new = LockFile::write(&path, note(2)).unwrap();
        drop(old);
        assert_eq!(LockNote::read(&path), Some(note(2)));
        assert!(!format!("{:?}", note(2)).contains("wo_1"), "the token does not print");
    }

    #[test]
    fn unspecified_addresses_are_reached_by_loopback() {
        assert_eq!(reachable("0.0.0.0:8080".parse().unwrap()).to_string(), "127.0.0.1:8080");
        assert_eq!(reachable("[::]:8080".parse().unwrap()).to_string(), "[::1]:8080");
        assert_eq!(reachable("192.0.2.7:1".parse().unwrap()).to_string(), "192.0.2.7:1");
    }
}
