//! The texts for users: each crate with texts has them in every language, and the kernel has none of a module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use werkruf_contract::{Language, TextSet, Texts};

use crate::sources::root;

const LANGUAGES: [Language; 3] = [Language::German, Language::English, Language::Spanish];
/// The crate with the texts of the kernel. Every other crate with texts is a module.
const KERNEL: &str = "werkruf-contract";

/// The texts of one crate.
struct CrateTexts {
    name: String,
    /// The files, in the order of `LANGUAGES`.
    files: [&'static str; 3],
}

impl CrateTexts {
    fn ids(&self) -> impl Iterator<Item = &'static str> {
        variables(self.files[1]).into_keys()
    }
}

/// The texts of all crates that have a folder `texts`.
fn all_texts() -> Vec<CrateTexts> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let with_texts = folders.filter(|folder| folder.join("texts").is_dir());
    let read = |folder: std::path::PathBuf| {
        let file = |language: Language| fs::read_to_string(folder.join(format!("texts/{language}.ftl"))).unwrap().leak();
        CrateTexts { name: folder.file_name().unwrap().to_string_lossy().into_owned(), files: LANGUAGES.map(|language| &*file(language)) }
    };
    with_texts.map(read).collect()
}

/// The variables of each text, by id.
fn variables(file: &'static str) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut variables: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut current = "";
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            current = line.split_once(" =").unwrap().0;
            assert!(variables.insert(current, BTreeSet::new()).is_none(), "{current} is defined twice");
        }
        for (at, _) in line.match_indices('$') {
            let name = line[at + 1..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').next().unwrap();
            variables.get_mut(current).unwrap().insert(name);
        }
    }
    variables
}

/// What the ids of related texts begin with: `flights` in `flights-none`.
fn prefix(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

#[test]
fn each_crate_has_the_same_texts_and_variables_in_all_languages() {
    let all = all_texts();
    assert!(all.iter().any(|texts| texts.name == KERNEL && texts.ids().count() > 50));
    for texts in all {
        let [german, english, spanish] = texts.files;
        let set: &'static TextSet = Box::leak(Box::new(TextSet::new(german, english, spanish)));
        for (language, file) in LANGUAGES.into_iter().zip(texts.files) {
            assert_eq!(variables(file), variables(english), "{language} and en of {} differ", texts.name);
            let parsed = Texts::of(language.as_str()).with(set);
            for id in texts.ids() {
                assert!(parsed.knows(id), "{id} of {} does not parse in {language}", texts.name);
            }
        }
    }
}

#[test]
fn no_text_is_in_two_crates() {
    let mut ids: Vec<&str> = all_texts().iter().flat_map(CrateTexts::ids).collect();
    ids.sort_unstable();
    let twice: Vec<&[&str]> = ids.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert_eq!(twice, Vec::<&[&str]>::new());
}

#[test]
fn the_kernel_has_no_text_of_a_module() {
    let (kernel, modules): (Vec<CrateTexts>, Vec<CrateTexts>) = all_texts().into_iter().partition(|texts| texts.name == KERNEL);
    let mut of_modules: BTreeSet<&str> = modules.iter().flat_map(CrateTexts::ids).map(prefix).collect();
    of_modules.extend(modules.iter().filter_map(|module| module.name.strip_prefix("werkruf-")));
    assert!(of_modules.contains("requests") && of_modules.contains("flights"), "{of_modules:?}");
    let found: Vec<&str> = kernel.iter().flat_map(CrateTexts::ids).filter(|id| of_modules.contains(prefix(id))).collect();
    assert_eq!(found, Vec::<&str>::new(), "these texts belong into the crate of their module");
}
