//! Types are named after things of the domain.

use crate::sources::{product_sources, without_visibility};

const FORBIDDEN_ENDINGS: [&str; 5] = ["Manager", "Helper", "Util", "Info", "Handler"];
/// Participles say nothing about the thing; name the thing instead.
const FORBIDDEN_NAMES: [&str; 6] = ["Asked", "Found", "Heard", "Said", "Told", "Wish"];

/// The types of all product sources that match, each with its file.
fn types(matches: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in product_sources() {
        for name in file.text.lines().filter_map(type_name).filter(|name| matches(name)) {
            found.push(format!("{}: {name}", file.path.display()));
        }
    }
    found
}

/// The name of the type that a line declares.
fn type_name(line: &str) -> Option<&str> {
    let rest = without_visibility(line);
    let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

#[test]
fn no_type_has_a_filler_word_at_its_end() {
    assert_eq!(types(|name| FORBIDDEN_ENDINGS.iter().any(|ending| name.ends_with(ending))), Vec::<String>::new());
}

#[test]
fn no_type_is_a_participle() {
    assert_eq!(types(|name| FORBIDDEN_NAMES.contains(&name)), Vec::<String>::new());
}

#[test]
fn types_of_every_visibility_are_seen() {
    assert_eq!(type_name("    pub(in crate::cli) struct RowInfo<'a> {"), Some("RowInfo"));
    assert_eq!(type_name("pub(super) enum Found {"), Some("Found"));
    assert_eq!(type_name("let structure = 1;"), None);
}
