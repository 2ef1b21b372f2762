//! Which crate may depend on which.

use std::collections::BTreeMap;
use std::fs;

use crate::sources::{product_sources, root};

/// The allowed dependencies of each crate. There are no cycles, and runtime and tools do not depend on each other.
const ALLOWED: [(&str, &[&str]); 7] = [
    ("werkruf-contract", &[]),
    ("werkruf-store", &["werkruf-contract"]),
    ("werkruf-llm", &["werkruf-contract"]),
    ("werkruf-reader", &[]),
    ("werkruf-runtime", &["werkruf-contract", "werkruf-llm", "werkruf-store"]),
    ("werkruf-tools", &["werkruf-contract", "werkruf-llm", "werkruf-store"]),
    ("werkruf", &["werkruf-contract", "werkruf-llm", "werkruf-runtime", "werkruf-store", "werkruf-tools"]),
];

fn manifest(folder: &str) -> String {
    fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap()
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    let mut crates = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let manifest: toml::Table = manifest(&format!("crates/{name}")).parse().unwrap();
        let allowed = allowed.get(name.as_str()).unwrap_or_else(|| panic!("{name} has no allowed dependencies; add it to ALLOWED"));
        for other in manifest["dependencies"].as_table().unwrap().keys().filter(|key| key.starts_with("werkruf")) {
            assert!(allowed.contains(&other.as_str()), "{name} must not depend on {other}");
        }
        crates.push(name);
    }
    assert_eq!(crates.len(), ALLOWED.len(), "{crates:?}");
}

#[test]
fn the_contract_depends_on_no_database_network_or_runtime() {
    let manifest = manifest("crates/werkruf-contract");
    let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap_or((&manifest, ""));
    for forbidden in ["tokio", "rusqlite", "reqwest", "axum", "http"] {
        assert!(!dependencies.lines().any(|line| line.starts_with(forbidden)), "werkruf-contract depends on {forbidden}");
    }
}

/// Only the confined program parses files of unknown origin.
#[test]
fn the_server_contains_no_parser_of_files() {
    for name in ALLOWED.iter().map(|(name, _)| *name).filter(|name| *name != "werkruf-reader") {
        let manifest: toml::Table = manifest(&format!("crates/{name}")).parse().unwrap();
        for parser in ["hayro-interpret", "html5ever", "quick-xml", "zip", "calamine", "csv", "encoding_rs"] {
            assert!(!manifest["dependencies"].as_table().unwrap().contains_key(parser), "{name} depends on {parser}");
        }
    }
}

#[test]
fn every_dependency_of_the_workspace_is_used() {
    let workspace: toml::Table = manifest("").parse().unwrap();
    let declared = workspace["workspace"]["dependencies"].as_table().unwrap();
    let folders = ALLOWED.iter().map(|(name, _)| format!("crates/{name}")).chain(["bench".to_owned()]);
    let manifests: String = folders.map(|folder| manifest(&folder)).collect();
    let unused: Vec<&String> = declared.keys().filter(|name| !manifests.contains(&format!("\n{name}"))).collect();
    assert_eq!(unused, Vec::<&String>::new());
}

#[test]
fn sql_is_only_in_the_store() {
    let mut found = Vec::new();
    for file in product_sources() {
        if file.path.starts_with("crates/werkruf-store") || file.path.starts_with("bench") {
            continue;
        }
        for statement in ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM "] {
            if file.text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(statement)) {
                found.push(format!("{}: {statement}", file.path.display()));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
