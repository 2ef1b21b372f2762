//! Limits on the length of files and functions.

use crate::sources::{product_sources, without_visibility};

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 80;

#[test]
fn files_are_short() {
    let long: Vec<String> = product_sources()
        .iter()
        .map(|file| (file.text.lines().count(), &file.path))
        .filter(|(lines, _)| *lines > FILE_LINES)
        .map(|(lines, path)| format!("{} has {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "no file may have more than {FILE_LINES} lines: {long:#?}");
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for file in product_sources() {
        let lines: Vec<&str> = file.text.lines().collect();
        for at in 0..lines.len() {
            if let Some(count) = function_lines(&lines[at..]).filter(|count| *count > FUNCTION_LINES) {
                long.push(format!("{}:{} has {count} lines", file.path.display(), at + 1));
            }
        }
    }
    assert!(long.is_empty(), "no function may have more than {FUNCTION_LINES} lines: {long:#?}");
}

/// The number of lines of the function that begins in the first line; `None` if none begins there or it has no body.
fn function_lines(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    if !begins_function(first) || first.ends_with([';', '}']) {
        return None;
    }
    let indent = first.len() - first.trim_start().len();
    let at_indent = |line: &&&str| line.len() - line.trim_start().len() == indent && !line.trim().is_empty();
    // rustfmt puts the closing brace of a body, or the end of a signature without one, at the indent of the first line.
    let mut ends = lines.iter().enumerate().skip(1).filter(|(_, line)| at_indent(line));
    let (at, _) = ends.find(|(_, line)| line.trim() == "}" || line.ends_with(';'))?;
    (lines[at].trim() == "}").then_some(at + 1)
}

/// Matches `(pub|pub(…))? (default|const|async|unsafe|safe|extern|"ABI")* fn`.
pub fn begins_function(line: &str) -> bool {
    let qualifier = |word: &&str| ["default", "const", "async", "unsafe", "safe", "extern"].contains(word) || word.starts_with('"');
    without_visibility(line).split(' ').find(|word| !qualifier(word)) == Some("fn")
}

#[test]
fn every_kind_of_function_is_seen() {
    for line in [
        "fn a() {",
        "    pub fn a() {",
        "pub(super) async fn a(",
        "pub(in crate::cli) const unsafe fn a() {",
        "    pub(crate) unsafe extern \"C\" fn a<T>(",
        "default async fn a() {",
    ] {
        assert!(begins_function(line), "{line}");
    }
    for line in ["const FN: u8 = 1;", "public fn", "let fn_name = 1;", "// fn a() {", "pub struct A {", "pub const A: u8 = 1;"] {
        assert!(!begins_function(line), "{line}");
    }
}

#[test]
fn the_length_of_a_function_includes_its_signature() {
    assert_eq!(function_lines(&["fn a(", "    b: u8,", ") {", "    c();", "}", "}"]), Some(5));
    assert_eq!(function_lines(&["    fn a(", "        b: u8,", "    );", "    fn c() {", "    }"]), None);
    assert_eq!(function_lines(&["fn a() {}", "}"]), None);
}
