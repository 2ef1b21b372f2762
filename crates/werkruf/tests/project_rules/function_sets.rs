//! The number of a set of SQL functions rises with its content. A database that has the number with other content is refused as
//! `schema_prerelease`, so a change without a new number would make every database of the last release useless.

use werkruf::modules::MODULES;
use werkruf_store::postgres::function_sets;

/// Each set of functions on PostgreSQL: its name in `schema_migrations`, its number, and the SHA-256 of its files one after another.
const SETS: [(&str, i64, &str); 3] = [
    ("kernel/functions", 1, "5854e322471dbf6e581e505d3d109d88fe7e20aae6f6eabcb1de9e3e64454c01"),
    ("flights/functions", 1, "6052dbcb55304b733fac576c5b46fb34c2e41f85af473860deea64121760a3f5"),
    ("knowledge/functions", 1, "fbb10977eacb91a04eb95659946783790f32f2c84fe8c5b8a834469060700ded"),
];

/// What is wrong with a set, and what to do.
fn fault(pinned: &[(&str, i64, &str)], part: &str, number: i64, checksum: &str) -> Option<String> {
    let line = |number: i64| format!("(\"{part}\", {number}, \"{checksum}\")");
    let Some((_, known, pinned)) = pinned.iter().find(|(name, ..)| *name == part) else {
        return Some(format!("{part} is not in `SETS`: add {}", line(number)));
    };
    match number.cmp(known) {
        std::cmp::Ordering::Less => Some(format!("{part} had number {known} and has {number}: a number never falls")),
        std::cmp::Ordering::Greater => Some(format!("{part} has a new number: write {}", line(number))),
        std::cmp::Ordering::Equal if *pinned == checksum => None,
        std::cmp::Ordering::Equal => Some(format!(
            "{part} changed under its number {number}. Has a release this number? Then raise `number` of its `FunctionSet` to {next} and write {}: without \
             that, every database of that release is refused as `schema_prerelease`. If no release has it, write {}",
            line(number + 1),
            line(number),
            next = number + 1,
        )),
    }
}

#[test]
fn a_changed_set_of_functions_has_a_new_number() {
    let sets = function_sets(MODULES);
    let faults: Vec<String> = sets.iter().filter_map(|(part, number, checksum)| fault(&SETS, part, *number, checksum)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let is_built = |part: &str| part != "flights/functions" || cfg!(feature = "flights");
    let gone: Vec<_> = SETS.iter().filter(|(name, ..)| is_built(name) && !sets.iter().any(|(part, ..)| part == name)).collect();
    assert!(gone.is_empty(), "these sets do not exist any more: {gone:?}");
}

#[test]
fn a_change_under_the_same_number_is_found() {
    let pinned = [("kernel/functions", 3, "abc")];
    assert_eq!(fault(&pinned, "kernel/functions", 3, "abc"), None);
    let changed = fault(&pinned, "kernel/functions", 3, "def").unwrap();
    assert!(changed.contains("raise `number`") && changed.contains("(\"kernel/functions\", 4, \"def\")"), "{changed}");
    assert!(fault(&pinned, "kernel/functions", 4, "def").unwrap().contains("write (\"kernel/functions\", 4, \"def\")"));
    assert!(fault(&pinned, "kernel/functions", 2, "abc").unwrap().contains("never falls"));
    assert!(fault(&pinned, "other/functions", 1, "abc").unwrap().contains("add"));
}
