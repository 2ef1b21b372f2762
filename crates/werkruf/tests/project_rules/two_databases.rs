//! The two databases share everything but SQL: no run of equal lines of Rust stands in the files of both.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::sizes::begins_function;
use crate::sources::{SourceFile, product_sources, without_visibility};

/// Fewer lines are equal by chance, for example a `match` over the same names.
const EQUAL_LINES: usize = 6;

const DATABASES: [&str; 2] = ["sqlite", "postgres"];

/// A counted line and its number, from 1.
type Line<'a> = (usize, &'a str);

#[test]
fn no_code_stands_in_both_databases() {
    let sources = product_sources();
    let mut crates: BTreeMap<&str, [Vec<&SourceFile>; 2]> = BTreeMap::new();
    for file in &sources {
        let Some((name, path)) = in_crate(&file.path) else { continue };
        if let Some(database) = database_of(path) {
            crates.entry(name).or_default()[database].push(file);
        }
    }
    assert!(crates["werkruf-store"].iter().all(|files| files.len() > 20), "the files of the databases were not found");
    let equal: Vec<String> = crates.values().flat_map(|[sqlite, postgres]| equal_runs(sqlite, postgres)).collect();
    assert!(
        equal.is_empty(),
        "{EQUAL_LINES} or more equal lines stand in both databases. Move a reader of rows into `readings!` (`reading.rs` of the crate), and a \
         decision into the module that both use: {equal:#?}"
    );
}

/// The name of the crate, and the path in its `src`.
fn in_crate(path: &Path) -> Option<(&str, &str)> {
    path.to_str()?.strip_prefix("crates/")?.split_once("/src/")
}

/// The database whose folder or file this is, by its place in [`DATABASES`]; `None` for a shared file.
fn database_of(path: &str) -> Option<usize> {
    let names = path.split(['/', '_', '.']);
    names.into_iter().find_map(|name| DATABASES.iter().position(|database| *database == name))
}

/// The lines that count: those of code. Signatures are not counted, because both databases implement the same traits.
fn code_lines(text: &str) -> Vec<Line<'_>> {
    let mut found = Vec::new();
    // How the last line of what is being skipped ends.
    let mut until: Option<&[char]> = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(ends) = until {
            until = Some(ends).filter(|ends| !line.ends_with(*ends));
            continue;
        }
        let item = without_visibility(line);
        let skipped: Option<&[char]> = match line {
            _ if item.starts_with("use ") => Some(&[';']),
            _ if item.starts_with("mod ") => Some(&[';', '{']),
            _ if begins_function(line) => Some(&['{', ';', '}']),
            _ if line.starts_with("#[") => Some(&[']']),
            _ => None,
        };
        match skipped {
            Some(ends) => until = Some(ends).filter(|ends| !line.ends_with(*ends)),
            None if line.starts_with("//") || !line.contains(char::is_alphanumeric) => {}
            None => found.push((at + 1, line)),
        }
    }
    found
}

/// Each place in the lines with the text of the run that starts there.
fn runs<'a>(lines: &[Line<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    lines.windows(EQUAL_LINES).map(|run| run.iter().map(|(_, line)| *line).collect()).enumerate().collect()
}

/// Each run of equal lines, once.
fn equal_runs(sqlite: &[&SourceFile], postgres: &[&SourceFile]) -> Vec<String> {
    let postgres_lines: Vec<Vec<Line<'_>>> = postgres.iter().map(|file| code_lines(&file.text)).collect();
    let mut places: HashMap<Vec<&str>, Vec<(usize, usize)>> = HashMap::new();
    for (file, lines) in postgres_lines.iter().enumerate() {
        for (start, run) in runs(lines) {
            places.entry(run).or_default().push((file, start));
        }
    }
    let mut found = Vec::new();
    for file in sqlite {
        let lines = code_lines(&file.text);
        for (start, run) in runs(&lines) {
            for (other, at) in places.get(&run).into_iter().flatten() {
                let others = &postgres_lines[*other];
                // The rest of a run that was found already.
                let continues = start > 0 && *at > 0 && lines[start - 1].1 == others[at - 1].1;
                if !continues {
                    let (first, second) = (lines[start], others[*at]);
                    let (path, other_path) = (file.path.display(), postgres[*other].path.display());
                    found.push(format!("{path}:{} and {other_path}:{}, from `{}`", first.0, second.0, first.1));
                }
            }
        }
    }
    found
}

#[test]
fn an_equal_run_is_found_whatever_stands_between_its_lines() {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.to_owned() };
    let first = file(
        "a/sqlite.rs",
        "use b::{\n    c,\n};\n\nfn read(\n    c: &mut Columns,\n) -> Row {\n    Row {\n        a: 1,\n        b: 2,\n        c: 3,\n    }\n}\n\n#[expect(\n    x,\n    reason = \"y\"\n)]\nfn next() {\n    d();\n    e();\n}\n",
    );
    let second = file(
        "a/postgres.rs",
        "async fn load(c: &mut Columns) -> Row {\nRow {\n// A comment.\na: 1,\n\nb: 2,\n#[cfg(x)]\nc: 3,\n}\n}\n\nfn other() {\nd();\ne();\nf();\n}\n",
    );
    assert_eq!(equal_runs(&[&first], &[&second]), ["a/sqlite.rs:8 and a/postgres.rs:2, from `Row {`"]);
    let shorter = file("a/postgres.rs", &second.text.replace("e();", "g();"));
    assert!(equal_runs(&[&first], &[&shorter]).is_empty(), "five lines");
    let signature = "use x::{\n    a,\n    b,\n    c,\n    d,\n    e,\n    f,\n};\n\nimpl A for B {\n    fn a(\n        &self,\n        b: u8,\n        c: u8,\n        d: u8,\n        e: u8,\n        f: u8,\n    ) -> u8 {\n        1\n    }\n}\n";
    let (first, second) = (file("a/sqlite.rs", signature), file("a/postgres.rs", signature));
    assert!(equal_runs(&[&first], &[&second]).is_empty(), "imports, and a signature of the trait");
}

#[test]
fn files_of_databases_are_recognised() {
    for (path, database) in [("sqlite/turns.rs", 0), ("postgres/import_sqlite.rs", 1), ("import_postgres.rs", 1), ("sqlite_write.rs", 0)] {
        assert_eq!(database_of(path), Some(database), "{path}");
    }
    assert_eq!(database_of("reading.rs"), None);
}
