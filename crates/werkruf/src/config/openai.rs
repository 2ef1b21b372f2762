//! `[openai]`: how the OpenAI-compatible API treats its clients.

use serde::Deserialize;

use super::file::Document;
use super::merge::reject;
use super::violation::ConfigViolation;

/// `[openai]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OpenAiSection {
    pub on_disconnect: Option<String>,
}

/// What becomes of a turn whose client leaves its stream under `/v1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// It is canceled.
    #[default]
    Cancel,
    /// It goes on to its end.
    Finish,
}

pub(super) fn merge(document: &Document, violations: &mut Vec<ConfigViolation>) -> OnDisconnect {
    match document.file.openai.on_disconnect.as_deref() {
        None | Some("cancel") => OnDisconnect::Cancel,
        Some("finish") => OnDisconnect::Finish,
        Some(other) => {
            let violation = document.violation("/openai/on_disconnect", format!("`{other}` is unknown; write \"cancel\" or \"finish\""));
            reject(violations, violation, OnDisconnect::Cancel)
        }
    }
}
