//! The file `<db>.erased.jsonl`: which users were erased and when, so that a restore of an older backup erases them again. It holds ids only.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use werkruf_contract::Uuid;

use super::backup::{at, sync_folder};
use super::migrate::beside;
use crate::MaintenanceError;

/// One erasure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) tenant_id: Uuid,
    pub(super) user_id: String,
    pub(super) erased_at: Timestamp,
}

const SUFFIX: &str = ".erased.jsonl";

/// Adds a line, durably.
pub(super) fn append(database: &Path, line: &Line) -> Result<(), MaintenanceError> {
    let path = beside(database, SUFFIX);
    let mut text = serde_json::to_string(line).map_err(|error| at(&path)(error.into()))?;
    text.push('\n');
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(at(&path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(at(&path))?;
    sync_folder(&path)
}

/// Reads all lines. A last line cut off by a crash was never reported as done and is skipped; any other unreadable line stops the restore.
pub(super) fn read(database: &Path) -> Result<Vec<Line>, MaintenanceError> {
    let path = beside(database, SUFFIX);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(&path)(error)),
    };
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n').filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(line) => lines.push(line),
            Err(_) if !line.ends_with('\n') => {}
            Err(error) => return Err(MaintenanceError::Unfit { path, why: format!("a line cannot be read: {error}") }),
        }
    }
    Ok(lines)
}
