//! The rules of the house that no lint can hold. A rule without a check drifts.

#![expect(clippy::unwrap_used, reason = "a house that cannot be read fails its rules")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const HARD_LINES: usize = 700;
const SOFT_LINES: usize = 400;
/// Files over the soft limit, at most this share of all.
const SOFT_SHARE: usize = 5;
const FUNCTION_LINES: usize = 80;
const FORBIDDEN_NAMES: [&str; 5] = ["Manager", "Helper", "Util", "Info", "Handler"];

/// Who may use whom. Nothing points up, and runtime and tools never see each other.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("werkruf-contract", &[]),
    ("werkruf-store", &["werkruf-contract"]),
    ("werkruf-llm", &["werkruf-contract"]),
    ("werkruf-runtime", &["werkruf-contract", "werkruf-llm", "werkruf-store"]),
    ("werkruf-tools", &["werkruf-contract", "werkruf-llm", "werkruf-store"]),
    ("werkruf", &["werkruf-contract", "werkruf-llm", "werkruf-runtime", "werkruf-store", "werkruf-tools"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                sources(&path, out);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

fn product_sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for folder in ["crates", "bench"] {
        sources(&root().join(folder), &mut files);
    }
    files
        .into_iter()
        .filter(|path| !path.components().any(|c| c.as_os_str() == "tests") && !path.to_string_lossy().ends_with("_tests.rs"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path.strip_prefix(root()).unwrap().to_owned(), text)
        })
        .collect()
}

#[test]
fn files_are_short() {
    let files = product_sources();
    let over = |limit: usize| -> Vec<String> {
        files
            .iter()
            .filter(|(_, text)| text.lines().count() > limit)
            .map(|(path, text)| format!("{} {}", text.lines().count(), path.display()))
            .collect()
    };
    assert_eq!(over(HARD_LINES), Vec::<String>::new(), "no file may have over {HARD_LINES} lines");
    let long = over(SOFT_LINES);
    assert!(long.len() * 100 <= files.len() * SOFT_SHARE, "too many files over {SOFT_LINES} lines: {long:#?}");
}

#[test]
fn functions_fit_a_screen() {
    let mut long = Vec::new();
    for (path, text) in product_sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let starts = ["fn ", "pub fn ", "async fn ", "pub async fn ", "pub(crate) fn ", "pub(crate) async fn ", "pub(super) fn "];
            if !starts.iter().any(|start| line.trim_start().starts_with(start)) || line.trim_end().ends_with(';') {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            if let Some(length) = lines[at..].iter().position(|l| **l == close)
                && length + 1 > FUNCTION_LINES
            {
                long.push(format!("{}:{} has {} lines", path.display(), at + 1, length + 1));
            }
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let mut crates = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let manifest: toml::Table = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap().parse().unwrap();
        let used: Vec<String> =
            manifest["dependencies"].as_table().unwrap().keys().filter(|key| key.starts_with("werkruf")).cloned().collect();
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("{name} is no room of this house"));
        for other in used {
            assert!(may.contains(&other.as_str()), "{name} must not use {other}");
        }
        crates.push(name);
    }
    assert_eq!(crates.len(), MAY_USE.len(), "six crates: {crates:?}");
}

#[test]
fn the_contract_knows_no_database_no_network_no_runtime() {
    let manifest = fs::read_to_string(root().join("crates/werkruf-contract/Cargo.toml")).unwrap();
    let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap_or((&manifest, ""));
    for foreign in ["tokio", "rusqlite", "reqwest", "axum", "http"] {
        assert!(!dependencies.lines().any(|line| line.starts_with(foreign)), "werkruf-contract depends on {foreign}");
    }
}

#[test]
fn names_are_nouns_of_the_domain() {
    let mut found = Vec::new();
    for (path, text) in product_sources() {
        for line in text.lines() {
            let words = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            let Some(name) = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| words.strip_prefix(kind)) else { continue };
            let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
            if FORBIDDEN_NAMES.iter().any(|bad| name.ends_with(bad)) {
                found.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn sql_lives_in_the_store() {
    let mut found = Vec::new();
    for (path, text) in product_sources() {
        if path.starts_with("crates/werkruf-store") || path.starts_with("bench") {
            continue;
        }
        for needle in ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM "] {
            if text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(needle)) {
                found.push(format!("{}: {needle}", path.display()));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// Every code an operator may meet has a page that says what to do.
#[test]
fn every_error_code_has_a_page() {
    let pages: Vec<String> = fs::read_dir(root().join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut missing = Vec::new();
    for (path, text) in product_sources() {
        if path.starts_with("bench") {
            continue;
        }
        for call in ["Failure::validation(", "Failure::fatal(", "Failure::upstream(", "code: \"", "ApiError::new("] {
            for rest in text.split(call).skip(1) {
                let rest = rest.trim_start().trim_start_matches('"');
                let code: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                if code.len() > 3 && rest[code.len()..].starts_with('"') && !pages.contains(&code) {
                    missing.push(format!("{}: {code}", path.display()));
                }
            }
        }
    }
    missing.sort();
    missing.dedup();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_dependency_of_the_workspace_is_used() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let declared = manifest["workspace"]["dependencies"].as_table().unwrap();
    let mut manifests = String::new();
    for folder in MAY_USE.iter().map(|(name, _)| format!("crates/{name}")).chain(["bench".to_owned()]) {
        manifests.push_str(&fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap());
    }
    let unused: Vec<&String> = declared.keys().filter(|name| !manifests.contains(&format!("\n{name}"))).collect();
    assert_eq!(unused, Vec::<&String>::new());
}
