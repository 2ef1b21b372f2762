//! Which file of a crate uses which other file of it.
//!
//! A module is a file; inline modules belong to their file. A file uses another one by a path that starts with `crate`, `super`,
//! `self` or the name of its own child module. An item that is re-exported with `pub use` belongs to the file that defines it,
//! so a `pub use` itself is no dependency. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::sources::{files, has_extension, is_test, without_visibility};

/// The names of nested modules, from the crate's root.
pub type ModulePath = Vec<String>;
/// For each module the modules it uses.
pub type Graph = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

#[derive(Default)]
struct Module {
    /// Paths that the module's code uses, unresolved.
    uses: Vec<Vec<String>>,
    /// Names that `pub use` makes available, with the unresolved paths behind them.
    exports: BTreeMap<String, Vec<String>>,
}

/// The graph of a crate, by its folder in `crates`.
pub fn of_crate(name: &str) -> Graph {
    let folder = format!("crates/{name}/src");
    let sources = files(&folder).into_iter().filter(|file| has_extension(&file.path, &["rs"]) && !is_test(&file.path));
    of_sources(sources.map(|file| (module_path(file.path.strip_prefix(&folder).unwrap()), file.text)))
}

/// The graph of these modules, each given with its source text.
pub fn of_sources(sources: impl IntoIterator<Item = (ModulePath, String)>) -> Graph {
    let mut modules: BTreeMap<ModulePath, Module> = BTreeMap::new();
    let mut tests = Vec::new();
    for (path, text) in sources {
        let (code, test_modules) = without_tests(&text);
        tests.extend(test_modules.into_iter().map(|child| join(&path, &child)));
        modules.insert(path, parse(&code));
    }
    modules.retain(|path, _| !tests.contains(path));
    let used = |from: &ModulePath, module: &Module| {
        let targets = module.uses.iter().filter_map(|path| resolve(&modules, from, path));
        targets.filter(|target| target != from).collect()
    };
    modules.iter().map(|(path, module)| (path.clone(), used(path, module))).collect()
}

/// `turn/calls.rs` is `turn::calls`, `turn/mod.rs` is `turn`, `lib.rs` is the root.
fn module_path(file: &Path) -> ModulePath {
    let mut path: ModulePath = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// The file that defines the item at this path; `None` if the path leads out of the crate.
fn resolve(modules: &BTreeMap<ModulePath, Module>, from: &ModulePath, path: &[String]) -> Option<ModulePath> {
    let (first, after) = path.split_first()?;
    let (mut module, mut rest) = match first.as_str() {
        "crate" => (ModulePath::new(), after),
        "self" => (from.clone(), after),
        "super" => (from.split_last()?.1.to_vec(), after),
        child if modules.contains_key(&join(from, child)) => (from.clone(), path),
        _ => return None,
    };
    while let Some((name, after)) = rest.split_first() {
        let child = join(&module, name);
        if name == "super" {
            module.pop()?;
        } else if modules.contains_key(&child) {
            module = child;
        } else if let Some(target) = modules.get(&module).and_then(|here| here.exports.get(name)) {
            return resolve(modules, &module, target).or(Some(module));
        } else {
            break;
        }
        rest = after;
    }
    Some(module)
}

fn join(module: &ModulePath, child: &str) -> ModulePath {
    [&module[..], &[child.to_owned()]].concat()
}

/// The code without comments and tests, and the names of the child modules that are tests.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let (mut code, mut tests) = (String::new(), Vec::new());
    let mut lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let Some(item) = lines.by_ref().find(|line| !line.trim_start().starts_with("#[")) else { break };
        let name = without_visibility(item).strip_prefix("mod ").and_then(|rest| rest.trim_end().strip_suffix(';'));
        tests.extend(name.map(str::to_owned));
        let indent = item.len() - item.trim_start().len();
        let ends = |line: &str| line.ends_with([';', '}']) && line.len() - line.trim_start().len() == indent;
        if !ends(item) {
            lines.by_ref().find(|line| ends(line));
        }
    }
    (code, tests)
}

fn parse(code: &str) -> Module {
    let mut module = Module::default();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        // The text before a `use` belongs to other items.
        let Some(at) = use_position(statement) else {
            rest.push_str(statement);
            continue;
        };
        let (before, import) = statement.split_at(at);
        rest.push_str(before);
        let public = import.trim_start().starts_with("pub");
        let tree = without_visibility(import).trim_start_matches("use ").trim_end_matches(';');
        for (path, name) in expand(tree) {
            if public {
                module.exports.insert(name, path);
            } else {
                module.uses.push(path);
            }
        }
    }
    module.uses.extend(inline_paths(&rest));
    module
}

/// Where the `use` line of a statement begins.
fn use_position(statement: &str) -> Option<usize> {
    let mut at = 0;
    for line in statement.split_inclusive('\n') {
        if without_visibility(line).starts_with("use ") {
            return Some(at);
        }
        at += line.len();
    }
    None
}

/// The paths of a use tree, each with the name it gets: `a::{b, c as d}` is `a::b` as `b` and `a::c` as `d`.
fn expand(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some((prefix, group)) = tree.split_once('{') {
        let prefix: Vec<String> = segments(prefix);
        let inner = split_group(group.trim_end().strip_suffix('}').unwrap_or(group));
        let joined = |(path, name): (Vec<String>, String)| {
            let own: Vec<String> = path.into_iter().filter(|part| part != "self").collect();
            ([&prefix[..], &own[..]].concat(), name)
        };
        return inner.into_iter().flat_map(expand).map(joined).collect();
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim().to_owned())));
    let path = segments(path);
    let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
    if path.is_empty() { Vec::new() } else { vec![(path, name)] }
}

/// Splits at the commas that are not inside braces.
fn split_group(group: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_comma = |letter: char| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    };
    group.split(is_comma).collect()
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Paths in code other than `use`. A restricted visibility such as `pub(in crate::cli)` is not one.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let code = code.replace("pub(in crate::", "pub(");
    let tokens = code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'));
    tokens.filter(|token| token.contains("::")).map(segments).filter(|path| path.len() > 1).collect()
}
