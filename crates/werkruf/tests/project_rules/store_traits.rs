//! `Store` stays small: it has what the kernel needs of a database, and nothing that only one part of the server needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{files, has_extension, is_test, without_visibility};

/// A method more is a decision. Look for a read that can take a filter first, then for the part of the server that alone needs the method.
const MOST_METHODS: usize = 74;

/// A trait with its supertraits and the number of its methods.
#[derive(Default)]
struct TraitSize {
    supertraits: Vec<String>,
    methods: usize,
}

fn store_traits() -> BTreeMap<String, TraitSize> {
    let sources = files("crates/werkruf-store/src").into_iter().filter(|file| has_extension(&file.path, &["rs"]) && !is_test(&file.path));
    let outside_tests = sources.filter(|file| !file.path.starts_with("crates/werkruf-store/src/story"));
    outside_tests.flat_map(|file| traits_of(&file.text)).collect()
}

/// The traits of a file. Their own lines have no indent, the declarations of their methods one of four.
fn traits_of(text: &str) -> Vec<(String, TraitSize)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = without_visibility(line).strip_prefix("trait ").filter(|_| !line.starts_with(' ')) else { continue };
        let mut head = rest.to_owned();
        while !head.contains('{') {
            head.push_str(lines.next().unwrap());
        }
        let (head, body) = head.split_once('{').unwrap();
        let (name, bounds) = head.split_once(':').unwrap_or((head, ""));
        let supertraits = bounds.split('+').map(|bound| bound.trim().to_owned()).filter(|bound| !bound.is_empty()).collect();
        let is_empty = body.contains('}');
        let own = lines.by_ref().take_while(|line| *line != "}").take(if is_empty { 0 } else { usize::MAX });
        let methods = own.filter(|line| line.starts_with("    fn ")).count();
        found.push((name.trim().to_owned(), TraitSize { supertraits, methods }));
    }
    found
}

/// The traits that this one has, itself included, with the number of their methods.
fn parts<'a>(traits: &'a BTreeMap<String, TraitSize>, name: &'a str) -> BTreeMap<&'a str, usize> {
    let (mut known, mut open) = (BTreeSet::new(), vec![name]);
    while let Some(name) = open.pop() {
        if let Some(found) = traits.get(name).filter(|_| known.insert(name)) {
            open.extend(found.supertraits.iter().map(String::as_str));
        }
    }
    known.into_iter().map(|name| (name, traits[name].methods)).collect()
}

#[test]
fn the_store_of_the_kernel_has_few_methods() {
    let traits = store_traits();
    let parts = parts(&traits, "Store");
    let methods: usize = parts.values().sum();
    assert!(
        methods <= MOST_METHODS,
        "`Store` has {methods} methods, and {MOST_METHODS} are allowed. A read that differs from another by a filter or an order becomes a \
         filter of that one; what only one part of the server needs goes into a trait of `store/src/surfaces.rs`. {parts:?}"
    );
}

#[test]
fn methods_of_supertraits_are_counted_once() {
    let text = "pub trait Both:\n    One\n    + Two\n{\n}\n\npub trait One: Send + Sync {\n    /// Reads.\n    fn a(&self);\n    fn b(&self) {\n        let x = 1;\n    }\n}\n\
                trait Two: One {\n    fn c(\n        &self,\n    );\n}\npub trait Empty: One {}\npub trait Other {\n    fn d(&self);\n}\n";
    let traits = traits_of(text).into_iter().collect();
    assert_eq!(parts(&traits, "Both"), BTreeMap::from([("Both", 0), ("One", 2), ("Two", 1)]));
    assert_eq!(parts(&traits, "Empty"), BTreeMap::from([("Empty", 0), ("One", 2)]));
    assert_eq!(parts(&traits, "Other"), BTreeMap::from([("Other", 1)]));
}
