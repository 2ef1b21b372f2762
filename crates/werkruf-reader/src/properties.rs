//! Properties of the readers that must hold for any input. The property tests and the targets in `fuzz/` call these functions; each panics
//! when its property does not hold.

use crate::{Kind, MAX_TEXT_BYTES, read};

/// A reader returns text within its bounds, or an error.
pub fn bounded(kind: Kind, bytes: &[u8]) {
    if let Ok(file) = read(kind, bytes.to_vec()) {
        assert!(file.text.len() <= MAX_TEXT_BYTES);
        assert!(!file.text.trim().is_empty(), "a file without text is an error");
        assert_eq!(file.kind, kind);
    }
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
