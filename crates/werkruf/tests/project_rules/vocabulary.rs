//! Words that this project no longer uses. docs and sources use the words of the field instead.

use std::path::Path;

use crate::sources::{SourceFile, files, has_extension};

/// Retired in every file, as a whole word, in the plural, and as a part of an identifier.
const RETIRED: [&str; 16] = [
    "boarding",
    "brought",
    "corridor",
    "door",
    "fleet",
    "house",
    "housekeeping",
    "keeping",
    "knock",
    "knocked",
    "ledger",
    "oracle",
    "parked",
    "porch",
    "stir",
    "yard",
];

/// Retired in the runtime only: other crates search real flights with real seats.
const RETIRED_IN_RUNTIME: [&str; 4] = ["flight", "fly", "landing", "seat"];
const RUNTIME: &str = "crates/werkruf-runtime";

/// Phrases of several words, in lower case.
const RETIRED_PHRASES: [&str; 6] = ["person's word", "tells the story", "what always holds", "goes on with", "gone on with", "lets go"];

/// Legitimate uses: removed from a line before it is checked.
const ALLOWED: [&str; 4] = ["in flight", "in_flight", "InFlight", "IN_FLIGHT"];

/// Where the rule applies.
const CHECKED: [&str; 8] = ["crates", "bench", "tests", "docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile"];
/// This file names the words, and a released migration never changes.
const EXEMPT: [&str; 6] = [
    "crates/werkruf/tests/project_rules/vocabulary.rs",
    "crates/werkruf-store/src/postgres/migrations",
    "crates/werkruf-store/src/sqlite/migrations",
    "crates/werkruf-workspace/migrations",
    "crates/werkruf-flights/migrations",
    "crates/werkruf-knowledge/migrations",
];

fn is_checked(path: &Path) -> bool {
    let known = has_extension(path, &["rs", "sql", "md", "py", "ftl", "toml"]) || path.ends_with("Makefile");
    known && !EXEMPT.iter().any(|exempt| path.starts_with(exempt))
}

/// The words of a line in lower case: identifiers are split at underscores and before capital letters.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lowercase = false;
    for letter in line.chars() {
        if !letter.is_ascii_alphabetic() || (letter.is_ascii_uppercase() && after_lowercase) {
            words.push(String::new());
        }
        if letter.is_ascii_alphabetic() {
            words.last_mut().unwrap().push(letter.to_ascii_lowercase());
        }
        after_lowercase = letter.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The retired words and phrases of a line.
fn retired(line: &str, in_runtime: bool) -> Vec<&'static str> {
    let line = ALLOWED.iter().fold(line.to_owned(), |line, allowed| line.replace(allowed, " "));
    let words = words(&line);
    let has = |retired: &str| words.iter().any(|word| word.strip_suffix('s').unwrap_or(word) == retired || word == retired);
    let lower = line.to_lowercase();
    let runtime_words = RETIRED_IN_RUNTIME.iter().filter(|_| in_runtime);
    let single = RETIRED.iter().chain(runtime_words).filter(|word| has(word));
    single.chain(RETIRED_PHRASES.iter().filter(|phrase| lower.contains(*phrase))).copied().collect()
}

fn faults(file: &SourceFile) -> Vec<String> {
    let in_runtime = file.path.starts_with(RUNTIME);
    let mut faults = Vec::new();
    for word in retired(&file.path.to_string_lossy(), in_runtime) {
        faults.push(format!("{}: {word} in the path", file.path.display()));
    }
    for (at, line) in file.text.lines().enumerate() {
        for word in retired(line, in_runtime) {
            faults.push(format!("{}:{}: {word}", file.path.display(), at + 1));
        }
    }
    faults
}

#[test]
fn no_file_uses_a_retired_word() {
    let checked = CHECKED.iter().flat_map(|under| files(under)).filter(|file| is_checked(&file.path));
    let faults: Vec<String> = checked.flat_map(|file| faults(&file)).collect();
    assert!(faults.is_empty(), "{} uses of retired words:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn words_are_found_in_prose_and_in_identifiers() {
    for line in ["The House.", "open_door()", "DoorKeeper", "let doors = 1;", "OPEN_DOOR", "mod house;"] {
        assert_eq!(retired(line, false).len(), 1, "{line}");
    }
    assert_eq!(retired("It waits for a person's word", false), ["person's word"]);
    for line in ["warehouse", "restirring", "indoor", "calls in flight", "fn in_flight()", "InFlight"] {
        assert_eq!(retired(line, true), Vec::<&str>::new(), "{line}");
    }
    assert_eq!((retired("let seats = flights;", false).len(), retired("let seats = flights;", true).len()), (0, 2));
}
