//! The files of an open database: the lock of this process, and whether the files under their names are still the open ones.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::migrate::beside;
use crate::StoreError;

/// Two locks of this process; the operating system releases them with the process.
///
/// The lock on `<db>.lock-held` counts for the name, also while a restore replaces the file. The lock on the database itself counts for the
/// file: it is found through any symbolic or hard link, and after the lock file was removed. It is an `flock`, which on Linux is independent
/// of the `fcntl` locks that SQLite and other readers use. Closing any descriptor of a file drops the `fcntl` locks that the process has on
/// it. So this descriptor is opened before SQLite opens the file, and must be dropped after the last connection is closed.
#[derive(Debug)]
pub(super) struct Lock {
    _name: File,
    _file: Option<File>,
}

impl Lock {
    /// Locks the database for this process, and creates its folder where there is none. With `create` also the file is created. What is
    /// created here only its owner may read, whatever the umask is.
    pub(super) fn take(path: &Path, create: bool) -> Result<Self, StoreError> {
        let unavailable = |error: std::io::Error| StoreError::Unavailable(format!("{}: {error}", path.display()));
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unavailable)?;
        }
        let lock = |file: File| match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(path.display().to_string())),
            Err(TryLockError::Error(error)) => Err(unavailable(error)),
        };
        let mut options = OpenOptions::new();
        options.write(true).truncate(false).mode(0o600);
        let name = lock(options.clone().create(true).open(beside(path, ".lock-held")).map_err(unavailable)?)?;
        let file = match options.create(create).open(path) {
            Ok(file) => Some(lock(file)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unavailable(error)),
        };
        Ok(Self { _name: name, _file: file })
    }
}

/// Which file a name stands for: device and inode.
type FileId = (u64, u64);

/// The database and its WAL as they were when the server opened them.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Vec<(PathBuf, FileId)>);

impl OpenFiles {
    /// The files of a connection that has written. A database in memory has none.
    pub(super) fn of(connection: &Connection) -> Self {
        let Some(path) = connection.path().filter(|path| !path.is_empty()).map(Path::new) else { return Self::default() };
        let files = [path.to_owned(), beside(path, "-wal")];
        Self(files.into_iter().filter_map(|path| file_id(&path).ok().map(|id| (path, id))).collect())
    }

    /// The first name that no longer stands for the open file. What is committed now would be lost with that file.
    pub(super) fn replaced(&self) -> Option<&Path> {
        self.0
            .iter()
            .find(|(path, opened)| match file_id(path) {
                Ok(id) => id != *opened,
                Err(error) => error.kind() == ErrorKind::NotFound,
            })
            .map(|(path, _)| path.as_path())
    }
}

fn file_id(path: &Path) -> std::io::Result<FileId> {
    std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
}
