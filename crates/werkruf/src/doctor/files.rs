//! Looks at files and disks: who may read what, and how much space is left.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::{Report, Severity};
use crate::config::Config;

/// With less the next writes may fail.
const SPACE_ERROR: u64 = 64 << 20;
/// With less an operator should act.
const SPACE_WARNING: u64 = 1 << 30;
/// A WAL of this size is not copied into the database any more: a reader prevents it.
const LARGE_WAL: u64 = 512 << 20;

pub(crate) fn check_files(config: &Config, report: &mut Report) {
    if let Some(file) = config.database.file() {
        for path in ["", "-wal", ".key", ".lock"].map(|suffix| beside(file, suffix)) {
            check_private(&path, report);
        }
        check_folder(file, report);
        check_space(file, report);
        check_wal(&beside(file, "-wal"), report);
    }
    if let Some(tls) = &config.tls {
        check_private(&tls.key, report);
    }
    if let Some(file) = &config.file
        && mode(file).is_some_and(|mode| mode & 0o022 != 0)
    {
        let message =
            format!("Other users may change the config file {}, which says where the database and the tools are.", file.display());
        report.find(Severity::Warning, "files", "", message, format!("chmod go-w {}", file.display()));
    }
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

fn mode(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o7777)
}

/// A file with data or secrets is for its owner only. A file that does not exist is not wrong.
fn check_private(path: &Path, report: &mut Report) {
    if let Some(mode) = mode(path).filter(|mode| mode & 0o077 != 0) {
        let message = format!("Other users may open {} (mode {mode:o}).", path.display());
        report.find(Severity::Warning, "files", "", message, format!("chmod 600 {}", path.display()));
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn check_folder(file: &Path, report: &mut Report) {
    let folder = folder_of(file);
    if let Some(mode) = mode(folder).filter(|mode| mode & 0o077 != 0) {
        let message = format!("Other users may open the folder of the database, {} (mode {mode:o}).", folder.display());
        // The files themselves are checked one by one.
        report.find(Severity::Note, "files", "", message, format!("chmod 700 {}", folder.display()));
    }
}

fn check_space(file: &Path, report: &mut Report) {
    let Ok(disk) = statvfs(folder_of(file)) else { return };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    report.checked(format!("disk of the database: {} MiB free", free >> 20));
    let severity = match free {
        ..SPACE_ERROR => Severity::Error,
        SPACE_ERROR..SPACE_WARNING => Severity::Warning,
        SPACE_WARNING.. => return,
    };
    let message = format!("The disk of the database has {} MiB left.", free >> 20);
    report.find(
        severity,
        "files",
        "storage_full",
        message,
        "Make space, move the database, or set [retention] so that old rows are deleted.",
    );
}

fn check_wal(wal: &Path, report: &mut Report) {
    if let Some(size) = std::fs::metadata(wal).ok().map(|found| found.len()).filter(|size| *size > LARGE_WAL) {
        let message =
            format!("{} has {} MiB: another program reads the database and keeps it from being emptied.", wal.display(), size >> 20);
        report.find(Severity::Warning, "files", "", message, "Find and end the program that has the file open (`fuser` lists them).");
    }
}
