//! Every module has a page in docs, which the list of pages in the README and the list of modules in the configuration name.

use std::fs;

use werkruf::modules::MODULES;

use crate::sources::root;

/// The list of all modules, those without tables too: one field for each.
const LIST: (&str, &str) = ("crates/werkruf/src/config/modules.rs", "pub struct ModulesOn {");

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of all modules.
fn modules() -> Vec<String> {
    let file = read(LIST.0);
    let fields = file.split(LIST.1).nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    fields.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.strip_suffix(": bool,")).map(str::to_owned).collect()
}

#[test]
fn every_module_has_a_page_that_the_readme_and_the_configuration_name() {
    let modules = modules();
    assert!(MODULES.iter().all(|module| modules.iter().any(|name| name == module.name)), "{modules:?}");
    let (readme, configuration) = (read("README.md"), read("docs/configuration.md"));
    for module in modules {
        let page = format!("{}.md", module.replace('_', "-"));
        assert!(!read(&format!("docs/{page}")).is_empty());
        assert!(readme.contains(&format!("](docs/{page})")), "README.md does not name docs/{page}");
        let row = format!("| `[{module}]` ([{module}]({page})) |");
        assert!(configuration.contains(&row), "the modules in docs/configuration.md have no row {row}");
    }
}
