//! Variables that look like settings, but that nothing reads. They are named, because a misspelt one would silently do nothing.

use super::Flags;
use super::environment::{Environment, Variable, variable_names};
use super::file::Document;
use super::suggestion::nearest;
use super::violation::ConfigViolation;

const OWN: &str = "WERKRUF_";
/// The variable that many programs read; this one does not, because it often names the database of another program.
const DATABASE_URL: &str = "DATABASE_URL";
/// Read by builds for tests/chaos and by the build itself.
const OTHERS: [&str; 2] = ["WERKRUF_CRASH", "WERKRUF_COMMIT"];

/// A warning for each variable that nothing reads.
pub(super) fn warnings(document: &Document, flags: &Flags, environment: &Environment) -> Vec<ConfigViolation> {
    let known = variable_names();
    let is_read = |name: &str| known.iter().any(|known| known == name) || OTHERS.contains(&name) || document.variables.contains(name);
    let mut unread: Vec<&str> = environment.names().filter(|name| name.starts_with(OWN) && !is_read(name)).collect();
    unread.sort_unstable();
    let misspelt = |name: &str| {
        // What all names begin with says nothing about likeness.
        let ends = known.iter().filter_map(|known| known.strip_prefix(OWN));
        let meant = nearest(name.strip_prefix(OWN).unwrap_or(name), ends).map(|end| format!("did you mean `{OWN}{end}`?"));
        let advice = meant.unwrap_or_else(|| "docs/configuration.md lists the variables".to_owned());
        ConfigViolation::new(name, format!("is set, but this release does not read it; {advice}"))
    };
    let mut warnings: Vec<ConfigViolation> = unread.into_iter().map(misspelt).collect();
    let named = flags.database.is_some() || environment.get(Variable::WERKRUF_DATABASE).is_some() || document.file.database.is_some();
    if !named && environment.lookup(DATABASE_URL).is_some() && !document.variables.contains(DATABASE_URL) {
        let message = "is set, but not read; set WERKRUF_DATABASE to the same value to use that database";
        warnings.push(ConfigViolation::new(DATABASE_URL, message));
    }
    warnings
}
