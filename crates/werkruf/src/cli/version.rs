//! `--version`.

use std::process::ExitCode;

use serde_json::json;

use super::{Outcome, print};

/// The commit this binary was built from, where the build said so.
const COMMIT: Option<&str> = option_env!("WERKRUF_COMMIT");

#[expect(clippy::unnecessary_wraps, reason = "every command ends with an outcome")]
pub(super) fn print(json: bool) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    let commit = COMMIT.unwrap_or("unknown");
    if json {
        print::json(&json!({"version": version, "commit": commit, "console": false}));
    } else {
        print::line(&format!("werkruf {version} ({commit})"));
    }
    Ok(ExitCode::SUCCESS)
}
