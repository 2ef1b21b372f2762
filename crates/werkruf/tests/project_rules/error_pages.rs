//! Every error code has a page in docs/errors that says what to do.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::sources::{product_sources, root};

/// Functions with an error code among their arguments. Other arguments may come first.
const WITH_CODE: [&str; 10] = [
    "Failure::validation(",
    "Failure::fatal(",
    "Failure::upstream(",
    "Failure::new(",
    "ApiError::new(",
    "ApiError::conflict(",
    "ApiError::forbidden(",
    "Self::conflict(",
    "Self::forbidden(",
    "CliError::refused(",
];
/// Paths whose next argument, or next part of a tuple, is often an error code.
const BEFORE_CODE: [&str; 2] = ["StatusCode::", "ToolErrorType::"];
/// Functions of one file that take the texts of the user and then a code.
const REFUSALS: &str = "refused(texts, \"";
/// Fields with an error code: in a struct, in a log line, in JSON.
const CODE_FIELDS: [&str; 5] = ["code: \"", "code: Some(\"", "code = \"", "\\\"code\\\":\\\"", "\\\"code\\\": \\\""];
/// The method of an error type that returns its code.
const CODE_METHOD: &str = "fn code(&self)";
/// What ends a method of an `impl` block.
const METHOD_END: &str = "\n    }\n";
/// Shorter names in a field are other codes, such as those of languages.
const SHORTEST: usize = 4;

/// The error codes that a source contains.
fn codes(text: &str) -> Vec<String> {
    let arguments = WITH_CODE.iter().flat_map(|function| text.split(function).skip(1)).filter_map(first_name);
    let after_path = BEFORE_CODE.iter().flat_map(|path| text.split(path).skip(1)).filter_map(next_name);
    let refusals = text.split(REFUSALS).skip(1).filter_map(quoted_name);
    let fields = CODE_FIELDS.iter().flat_map(|field| text.split(field).skip(1)).filter_map(quoted_name);
    let fields = fields.filter(|code| code.len() >= SHORTEST);
    let methods = text.split(CODE_METHOD).skip(1).filter_map(|rest| rest.split(METHOD_END).next());
    let arms = methods.flat_map(|method| method.split("=> \"").skip(1)).filter_map(quoted_name);
    let all: BTreeSet<String> = arguments.chain(after_path).chain(refusals).chain(fields).chain(arms).chain(constants(text)).collect();
    all.into_iter().collect()
}

/// The first text in quotation marks, if only plain names such as `StatusCode::NOT_FOUND` stand before it.
fn first_name(rest: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c.is_whitespace() || "_:,".contains(c);
    quoted_name(rest.trim_start_matches(plain).strip_prefix('"')?)
}

/// The text in quotation marks directly after `NOT_FOUND,`.
fn next_name(rest: &str) -> Option<String> {
    let (constant, after) = rest.split_once(',')?;
    let is_path = constant.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    quoted_name(after.trim_start().strip_prefix('"').filter(|_| is_path)?)
}

/// The values of constants whose comment says that they are codes.
fn constants(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().zip(text.lines().skip(1));
    lines
        .filter(|(comment, line)| comment.trim_start().starts_with("//") && comment.contains("code") && line.contains("const "))
        .filter_map(|(_, line)| {
            let (_, value) = line.split_once("str = \"")?;
            quoted_name(value)
        })
}

/// The name before the next quotation mark.
fn quoted_name(rest: &str) -> Option<String> {
    let (name, _) = rest.split_once(['"', '\\'])?;
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
    assert_eq!(codes("Self::new(StatusCode::CONFLICT, \"turn_running\", \"x\")"), ["turn_running"]);
    assert_eq!(codes("(ToolErrorType::Upstream, \"quota\")"), ["quota"]);
    assert_eq!(codes("Err(refused(texts, \"date_in_past\", &[]))"), ["date_in_past"]);
    assert_eq!(codes("warn!(code = \"plain_http\")"), ["plain_http"]);
    assert_eq!(codes(r#"b"{\"error\":{\"code\":\"https_required\"}}""#), ["https_required"]);
    assert_eq!(codes("/// The code of a lock.\nconst IN_USE: &'static str = \"in_use\";"), ["in_use"]);
    assert_eq!(codes("const FIELD: &str = \"pending\";"), Vec::<String>::new());
    assert_eq!(codes("Language { code: \"de\" }"), Vec::<String>::new());
}

#[test]
fn every_page_belongs_to_a_code_and_every_code_is_in_the_openapi_document() {
    let table = fs::read_to_string(root().join("docs/errors/README.md")).unwrap();
    let mut listed: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| [")?.split(']').next()).collect();
    listed.sort_unstable();
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(root().join("docs/openapi.json")).unwrap()).unwrap();
    let in_document = &document["components"]["schemas"]["ErrorCode"]["anyOf"][0]["enum"];
    assert_eq!(*in_document, serde_json::json!(listed), "run the test api_openapi with UPDATE_SNAPSHOTS=1");
    let mut used: Vec<String> = Vec::new();
    for file in product_sources() {
        used.extend(codes(&file.text));
        used.extend(file.text.split(CODE_ENUM.1).skip(1).filter_map(quoted_name).filter(|_| file.path == Path::new(CODE_ENUM.0)));
    }
    let unused: Vec<&&str> = listed.iter().filter(|code| !used.iter().any(|used| used == *code)).collect();
    assert_eq!(unused, Vec::<&&str>::new(), "no source has these codes, or this test does not find them");
}
