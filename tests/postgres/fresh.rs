//! A new PostgreSQL database for one test. Included by the tests that need one; the scripts beside this file create it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres")
}

/// The address of a new, empty database. It is dropped some time after this process has ended.
///
/// Installs PostgreSQL where it is missing; where that is not possible the test fails with the reason.
pub(crate) fn fresh_database() -> String {
    let output = Command::new(scripts().join("fresh")).arg(std::process::id().to_string()).output().unwrap();
    assert!(output.status.success(), "no PostgreSQL for this test:\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
