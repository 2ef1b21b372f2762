//! Looks at the file of a SQLite database before it is opened, so that an error names the file and says what to do.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Access, access};
use werkruf_store::StoreError;

use crate::cli::print;
use crate::config::DEFAULT_DATABASE;
use crate::start_error::StartError;

/// The first bytes of every SQLite file that is not empty.
const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Checks what can be checked without opening the file, and makes its folder if only that is missing.
pub(crate) fn prepare(file: &Path) -> Result<(), StartError> {
    let shown = file.display();
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => {
            return unusable(format!(
                "{shown} is a folder; name a file in it, such as --database sqlite:{}",
                file.join("werkruf.db").display()
            ));
        }
        Ok(_) => {
            if access(file, Access::READ_OK | Access::WRITE_OK).is_err() {
                return unusable(format!(
                    "this user may not read and write {shown}; run werkruf as the owner of the file, or name another with --database"
                ));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => make_folder(file, folder)?,
        Err(error) => return unusable(format!("{shown} cannot be looked at: {error}; correct --database, or the rights of its folders")),
    }
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return unusable(format!(
            "this user may not write in the folder {}; change its rights, or name another file with --database",
            folder.display()
        ));
    }
    Ok(())
}

/// The error of a file that could not be opened.
pub(crate) fn diagnose(file: &Path, error: StoreError) -> StartError {
    // Whoever holds the file has not failed to read it.
    if matches!(error, StoreError::InUse(_)) {
        return error.into();
    }
    let mut start = Vec::new();
    let read = File::open(file).and_then(|opened| opened.take(HEADER.len() as u64).read_to_end(&mut start));
    if read.is_ok() && !start.is_empty() && start != HEADER {
        return StartError::Unusable(format!("{} is not a SQLite database; name another file with --database", file.display()));
    }
    StartError::Database { name: file.display().to_string(), error }
}

/// Makes the folder of the file. A missing folder above it is a misspelt path.
fn make_folder(file: &Path, folder: &Path) -> Result<(), StartError> {
    if folder.is_dir() {
        return Ok(());
    }
    let shown = folder.display();
    // For its owner only, whatever the umask is. A folder that exists is the operator's business.
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {
            if file != Path::new(DEFAULT_DATABASE) {
                print::error_line(&format!("Made the folder {shown} for the database"));
            }
            Ok(())
        }
        // Another process made it.
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => {
                unusable(format!("the folder {shown} does not exist; make it with `mkdir -p {shown}`, or correct --database"))
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => unusable(format!(
                "this user may not make the folder {shown}; run werkruf where it may write, or name a file with --database"
            )),
            ErrorKind::AlreadyExists => unusable(format!("{shown} is not a folder; correct --database")),
            _ => Err(StartError::Io { what: format!("cannot make the folder {shown}"), source: error }),
        },
    }
}

fn unusable(message: String) -> Result<(), StartError> {
    Err(StartError::Unusable(message))
}
