//! A PostgreSQL database of a test's own. Included by the tests that need one; the scripts beside this file do the work.

use std::path::{Path, PathBuf};
use std::process::Command;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres")
}

/// The address of a new, empty database. It is dropped some time after this process has ended.
///
/// A machine without PostgreSQL gets one; where that is not possible the test fails and says why.
pub(crate) fn fresh_database() -> String {
    let made = Command::new(scripts().join("fresh")).arg(std::process::id().to_string()).output().unwrap();
    assert!(made.status.success(), "no PostgreSQL for this test:\n{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}
