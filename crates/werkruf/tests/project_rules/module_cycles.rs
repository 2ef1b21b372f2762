//! The modules of the runtime do not depend on each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::module_graph::{Graph, ModulePath, of_crate, of_sources};

/// Groups of modules that all use each other, directly or through others.
fn cycles(graph: &Graph) -> Vec<Vec<ModulePath>> {
    let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let mutual = |module: &ModulePath| -> Vec<ModulePath> {
        reached[module].iter().filter(|other| reached[*other].contains(module)).map(|other| (*other).clone()).collect()
    };
    let groups: BTreeSet<Vec<ModulePath>> = graph.keys().map(mutual).filter(|group| group.len() > 1).collect();
    groups.into_iter().collect()
}

/// The modules that this one uses, directly or through others.
fn reachable<'a>(graph: &'a Graph, module: &ModulePath) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&ModulePath> = graph[module].iter().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(&graph[next]);
        }
    }
    reached
}

/// The graph of the top-level modules, each with everything in its folder.
fn folders(graph: &Graph) -> Graph {
    let folder = |module: &ModulePath| module.first().cloned().into_iter().collect::<ModulePath>();
    let mut folders = Graph::new();
    for (module, used) in graph {
        let own = folder(module);
        let others = used.iter().map(&folder).filter(|other| *other != own);
        folders.entry(own.clone()).or_default().extend(others);
    }
    folders
}

/// Each cycle with the dependencies inside it, one per line.
fn report(graph: &Graph) -> Option<String> {
    let name = |module: &ModulePath| if module.is_empty() { "lib".to_owned() } else { module.join("::") };
    let mut text = String::new();
    for group in cycles(graph) {
        text.push_str(&format!("\ncycle of {}:\n", group.len()));
        for module in &group {
            let used: Vec<String> = graph[module].iter().filter(|other| group.contains(other)).map(name).collect();
            text.push_str(&format!("  {} uses {}\n", name(module), used.join(", ")));
        }
    }
    (!text.is_empty()).then_some(text)
}

#[test]
fn the_files_of_the_runtime_have_no_cycles() {
    if let Some(cycles) = report(&of_crate("werkruf-runtime")) {
        panic!("files of werkruf-runtime use each other in a circle:{cycles}");
    }
}

#[test]
fn the_folders_of_the_runtime_have_no_cycles() {
    if let Some(cycles) = report(&folders(&of_crate("werkruf-runtime"))) {
        panic!("folders of werkruf-runtime use each other in a circle:{cycles}");
    }
}

fn graph(sources: &[(&str, &str)]) -> Graph {
    let path = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    of_sources(sources.iter().map(|(name, text)| (path(name), (*text).to_owned())))
}

/// The modules that a module uses, as text.
fn used(graph: &Graph, module: &str) -> Vec<String> {
    let key: ModulePath = module.split("::").map(str::to_owned).collect();
    graph[&key].iter().map(|path| path.join("::")).collect()
}

#[test]
fn dependencies_are_read_from_paths() {
    let sources = [
        ("", "mod a;\nmod b;\npub use b::c::{Thing, Other as Renamed};\npub struct Root;"),
        ("a", "use crate::b::{self, c::{self, X}};\nuse std::fmt;\nfn f() { other_crate::g() }"),
        ("b", "mod c;\nfn f() -> c::Thing { crate::Root }"),
        ("b::c", "use super::super::Renamed;\npub(in crate::a) fn f() {}"),
        ("d", "fn f(thing: &crate::Thing) -> Vec<crate::Renamed> {}"),
        ("e", "use super::a;\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n// crate::d::f()\n"),
    ];
    let graph = graph(&sources);
    assert_eq!(used(&graph, "a"), ["b", "b::c"]);
    assert_eq!(used(&graph, "b"), ["", "b::c"], "a child module and an item of the root");
    assert_eq!(used(&graph, "b::c"), Vec::<String>::new(), "a re-export of its own item");
    assert_eq!(used(&graph, "d"), ["b::c"], "a re-export belongs to the file that defines the item");
    assert_eq!(used(&graph, "e"), ["a"], "without comments and tests");
    assert!(graph[&ModulePath::new()].is_empty(), "a re-export is no dependency");
}

#[test]
fn cycles_are_found_between_files_and_folders() {
    let files = [
        ("", "mod turn;\nmod call;\nmod limits;"),
        ("turn", "mod a;\nuse crate::call;"),
        ("turn::a", "use crate::limits::L;"),
        ("call", "mod b;"),
        ("call::b", "use crate::turn::a::X;"),
        ("limits", ""),
    ];
    let graph = graph(&files);
    assert_eq!(report(&graph), None);
    let cycles = report(&folders(&graph)).unwrap();
    assert_eq!(cycles, "\ncycle of 2:\n  call uses turn\n  turn uses call\n");
}
