//! Every error code has a page in docs/errors that says what to do.

use std::fs;

use crate::sources::{product_sources, root};

/// The text before an error code in the sources.
const BEFORE_CODE: [&str; 5] = ["Failure::validation(", "Failure::fatal(", "Failure::upstream(", "code: \"", "ApiError::new("];

#[test]
fn every_error_code_has_a_page() {
    let pages: Vec<String> = fs::read_dir(root().join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut missing = Vec::new();
    for file in product_sources().iter().filter(|file| !file.path.starts_with("bench")) {
        for rest in BEFORE_CODE.iter().flat_map(|before| file.text.split(before).skip(1)) {
            let rest = rest.trim_start().trim_start_matches('"');
            let code: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if code.len() > 3 && rest[code.len()..].starts_with('"') && !pages.contains(&code) {
                missing.push(format!("{}: {code}", file.path.display()));
            }
        }
    }
    missing.sort();
    missing.dedup();
    assert_eq!(missing, Vec::<String>::new());
}
