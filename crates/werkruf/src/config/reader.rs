//! The program that reads files, and whether it runs in a sandbox.

use std::path::PathBuf;

use super::environment::{Environment, Variable};
use super::file::Document;
use super::merge::reject;
use super::violation::ConfigViolation;

/// How files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderConfig {
    /// `None`: `werkruf-reader` beside this program.
    pub program: Option<PathBuf>,
    /// Whether a file is read only in a sandbox.
    pub sandbox: bool,
}

pub(super) fn merge(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> ReaderConfig {
    let sandbox = match document.file.knowledge.as_ref().and_then(|section| section.reader_sandbox.as_deref()) {
        None | Some("on") => true,
        Some("off") => false,
        Some(other) => {
            let message = format!("`{other}` is unknown; write \"on\" or \"off\"");
            reject(violations, document.violation("/knowledge/reader_sandbox", message), true)
        }
    };
    ReaderConfig { program: environment.get(Variable::WERKRUF_READER).map(PathBuf::from), sandbox }
}
