//! `--version`.

use std::process::ExitCode;

use serde_json::json;

use super::print;
use crate::api::pages;
use crate::version::{VERSION, commit};

pub(super) fn print(json: bool) -> ExitCode {
    let commit = commit();
    if json {
        print::json(&json!({"version": VERSION, "commit": commit, "console": pages::has_console()}));
    } else {
        print::line(&format!("werkruf {VERSION} ({commit})"));
    }
    ExitCode::SUCCESS
}
