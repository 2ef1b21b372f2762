//! Every error code has a page in docs/errors that says what to do.

use std::fs;
use std::path::Path;

use crate::sources::{product_sources, root};

/// Functions with an error code among their arguments. Other arguments may come first.
const WITH_CODE: [&str; 8] = [
    "Failure::validation(",
    "Failure::fatal(",
    "Failure::upstream(",
    "Failure::new(",
    "ApiError::new(",
    "ApiError::conflict(",
    "ApiError::forbidden(",
    "CliError::refused(",
];
/// A field with an error code.
const CODE_FIELD: &str = "code: \"";
/// The method of an error type that returns its code.
const CODE_METHOD: &str = "fn code(&self)";
/// What ends a method of an `impl` block.
const METHOD_END: &str = "\n    }\n";
/// Shorter names in a field are other codes, such as those of languages.
const SHORTEST: usize = 4;

/// The error codes that a source contains.
fn codes(text: &str) -> Vec<String> {
    let arguments = WITH_CODE.iter().flat_map(|function| text.split(function).skip(1)).filter_map(first_name);
    let fields = text.split(CODE_FIELD).skip(1).filter_map(quoted_name).filter(|code| code.len() >= SHORTEST);
    let methods = text.split(CODE_METHOD).skip(1).filter_map(|rest| rest.split(METHOD_END).next());
    let arms = methods.flat_map(|method| method.split("=> \"").skip(1)).filter_map(quoted_name);
    arguments.chain(fields).chain(arms).collect()
}

/// The first text in quotation marks, if only plain names such as `StatusCode::NOT_FOUND` stand before it.
fn first_name(rest: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c.is_whitespace() || "_:,".contains(c);
    quoted_name(rest.trim_start_matches(plain).strip_prefix('"')?)
}

/// The name before the next quotation mark.
fn quoted_name(rest: &str) -> Option<String> {
    let (name, _) = rest.split_once('"')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_name.then(|| name.to_owned())
}

/// The enum with the codes of the server, and the text before each code in it.
const CODE_ENUM: (&str, &str) = ("crates/werkruf-contract/src/error_code.rs", " = \"");

#[test]
fn every_error_code_has_a_page() {
    let pages: Vec<String> = fs::read_dir(root().join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let (mut missing, mut in_enum) = (Vec::new(), 0_usize);
    for file in product_sources().iter().filter(|file| !file.path.starts_with("bench")) {
        let is_enum = file.path == Path::new(CODE_ENUM.0);
        let mut found = codes(&file.text);
        if is_enum {
            let variants: Vec<String> = file.text.split(CODE_ENUM.1).skip(1).filter_map(quoted_name).collect();
            in_enum = variants.len();
            found.extend(variants);
        }
        let without_page = found.into_iter().filter(|code| !pages.contains(code));
        missing.extend(without_page.map(|code| format!("{}: {code}", file.path.display())));
    }
    assert!(in_enum > 20, "{} has {in_enum} codes", CODE_ENUM.0);
    missing.sort();
    missing.dedup();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn codes_are_found_in_arguments_and_in_match_arms() {
    let method = "    fn code(&self) -> &'static str {\n        match self {\n            Self::Io => \"io\",\n        }\n    }\n";
    assert_eq!(codes(method), ["io"]);
    assert_eq!(codes("ApiError::new(\n    StatusCode::NOT_FOUND,\n    \"not_found\",\n    \"No.\")"), ["not_found"]);
    assert_eq!(codes("ApiError::new(status, code, format!(\"text\"))"), Vec::<String>::new());
    assert_eq!(codes("code: \"timeout\".to_owned()"), ["timeout"]);
    assert_eq!(codes("Language { code: \"de\" }"), Vec::<String>::new());
}
