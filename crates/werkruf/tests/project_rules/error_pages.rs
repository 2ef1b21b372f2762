//! Every error code has a page in docs/errors that says what to do.

use std::fs;
use std::path::Path;

use crate::sources::{product_sources, root};

/// The text before an error code in the sources.
const BEFORE_CODE: [&str; 5] = ["Failure::validation(", "Failure::fatal(", "Failure::upstream(", "code: \"", "ApiError::new("];

/// The enum with the codes of the server, and the text before each code in it.
const CODE_ENUM: (&str, &str) = ("crates/werkruf-contract/src/error_code.rs", " = \"");

#[test]
fn every_error_code_has_a_page() {
    let pages: Vec<String> = fs::read_dir(root().join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let (mut missing, mut in_enum) = (Vec::new(), 0);
    for file in product_sources().iter().filter(|file| !file.path.starts_with("bench")) {
        let is_enum = file.path == Path::new(CODE_ENUM.0);
        let before_code = BEFORE_CODE.iter().copied().chain(is_enum.then_some(CODE_ENUM.1));
        for rest in before_code.flat_map(|before| file.text.split(before).skip(1)) {
            in_enum += u32::from(is_enum);
            let rest = rest.trim_start().trim_start_matches('"');
            let code: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if code.len() > 3 && rest[code.len()..].starts_with('"') && !pages.contains(&code) {
                missing.push(format!("{}: {code}", file.path.display()));
            }
        }
    }
    assert!(in_enum > 20, "{} has {in_enum} codes", CODE_ENUM.0);
    missing.sort();
    missing.dedup();
    assert_eq!(missing, Vec::<String>::new());
}
