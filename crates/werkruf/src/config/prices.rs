//! The prices of models: the built-in table, overridden by the operator's file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use werkruf_llm::prices::PriceTable;

use super::environment::{Environment, Variable};
use super::file::Document;
use super::violation::ConfigViolation;

pub(super) fn merge(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Arc<PriceTable> {
    let mut table = PriceTable::default();
    let folder = document.path.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new(""));
    let file = match environment.get(Variable::WERKRUF_PRICES) {
        Some(file) => Some((Variable::WERKRUF_PRICES.name(), PathBuf::from(file))),
        None => document.file.prices.as_ref().map(|file| ("/prices", folder.join(file))),
    };
    if let Some((place, file)) = file {
        let read = std::fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()));
        if let Err(message) = read.and_then(|text| table.overlay(&text).map_err(|fault| format!("{}: {fault}", file.display()))) {
            violations.push(document.violation(place, message));
        }
    }
    Arc::new(table)
}
