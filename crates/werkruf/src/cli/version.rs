//! `--version`.

use std::process::ExitCode;

use serde_json::json;

use super::print;

/// The commit this binary was built from, if the build set it.
const COMMIT: Option<&str> = option_env!("WERKRUF_COMMIT");

pub(super) fn print(json: bool) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    let commit = COMMIT.unwrap_or("unknown");
    if json {
        print::json(&json!({"version": version, "commit": commit, "console": false}));
    } else {
        print::line(&format!("werkruf {version} ({commit})"));
    }
    ExitCode::SUCCESS
}
