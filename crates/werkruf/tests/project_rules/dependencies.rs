//! Which crate may depend on which.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::sources::{files, product_sources, root};

/// What a module may depend on. Modules do not depend on each other.
const OF_A_MODULE: &[&str] = &["werkruf-contract", "werkruf-llm", "werkruf-store"];

/// The allowed dependencies of each crate. There are no cycles; the runtime, the tools and the modules do not depend on each other.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("werkruf-contract", &[]),
    ("werkruf-store", &["werkruf-contract"]),
    ("werkruf-llm", &["werkruf-contract"]),
    ("werkruf-reader", &[]),
    ("werkruf-routes", &[]),
    ("werkruf-runtime", &["werkruf-contract", "werkruf-llm", "werkruf-store"]),
    ("werkruf-tools", &["werkruf-contract", "werkruf-llm", "werkruf-store"]),
    ("werkruf-workspace", OF_A_MODULE),
    ("werkruf-flights", OF_A_MODULE),
    ("werkruf-knowledge", OF_A_MODULE),
    (
        "werkruf",
        &[
            "werkruf-contract",
            "werkruf-flights",
            "werkruf-knowledge",
            "werkruf-llm",
            "werkruf-routes",
            "werkruf-runtime",
            "werkruf-store",
            "werkruf-tools",
            "werkruf-workspace",
        ],
    ),
];

/// The modules with tables.
const MODULES: [&str; 3] = ["workspace", "flights", "knowledge"];
/// The crates that know no product.
const KERNEL: [&str; 5] = ["werkruf-contract", "werkruf-store", "werkruf-llm", "werkruf-runtime", "werkruf-tools"];

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

const SQL: [&str; 4] = ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM "];

/// In a module, SQL is in files that are named after their database.
fn may_have_sql(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let of_module = MODULES.iter().any(|module| path.starts_with(format!("crates/werkruf-{module}/src")));
    path.starts_with("crates/werkruf-store")
        || path.starts_with("bench")
        || (of_module && ["sqlite", "postgres"].iter().any(|database| name.contains(database)))
        || path.ends_with("werkruf-knowledge/src/schema.rs")
}

#[test]
fn sql_is_only_in_the_store_and_in_database_files_of_modules() {
    let mut found = Vec::new();
    for file in product_sources().into_iter().filter(|file| !may_have_sql(&file.path)) {
        for statement in SQL {
            if file.text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(statement)) {
                found.push(format!("{}: {statement}", file.path.display()));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// The tables that the migrations of the modules create.
fn tables_of_modules() -> Vec<String> {
    let migrations = MODULES.iter().flat_map(|module| files(&format!("crates/werkruf-{module}/migrations")));
    let tables = migrations.flat_map(|file| {
        let names = file.text.split("CREATE TABLE ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        names.map(str::to_owned).collect::<Vec<_>>()
    });
    tables.collect()
}

#[test]
fn the_kernel_names_no_table_of_a_module() {
    let tables = tables_of_modules();
    assert!(tables.len() > 15, "{tables:?}");
    let before = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "ON", "REFERENCES"];
    let is_comment = |line: &str| ["//", "--"].iter().any(|mark| line.trim_start().starts_with(mark));
    let mut found = Vec::new();
    for file in KERNEL.iter().flat_map(|name| files(&format!("crates/{name}/src"))) {
        for (at, line) in file.text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
            let words: Vec<&str> =
                line.split(|next: char| !next.is_alphanumeric() && next != '_').filter(|word| !word.is_empty()).collect();
            let named = words.windows(2).filter(|pair| before.contains(&pair[0]) && tables.iter().any(|table| table == pair[1]));
            found.extend(named.map(|pair| format!("{}:{}: {}", file.path.display(), at + 1, pair[1])));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_list_of_modules_is_in_one_file() {
    let lists = |text: &str| MODULES.iter().filter(|module| text.contains(&format!("werkruf_{module}::SCHEMA"))).count() > 1;
    let found: Vec<String> = product_sources()
        .iter()
        .filter(|file| file.path.starts_with("crates") && lists(&file.text))
        .map(|file| file.path.display().to_string())
        .collect();
    assert_eq!(found, ["crates/werkruf/src/modules.rs"]);
}
