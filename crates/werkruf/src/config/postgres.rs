//! `[postgres]`: how a database that many processes share is used.

use std::time::Duration;

use super::environment::{Environment, Variable};
use super::file::Document;
use super::merge::{note, switch};
use super::violation::ConfigViolation;

const DEFAULT_SCHEMA: &str = "werkruf";
const DEFAULT_CONNECTIONS: u32 = 12;
const MOST_CONNECTIONS: u32 = 500;
/// PostgreSQL keeps 63 characters of a name; ours are part of longer ones.
const LONGEST_NAME: usize = 48;

/// What is decided about PostgreSQL beside its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Where the tables are; a plain lower-case name.
    pub schema: String,
    /// Connections of this process at most.
    pub connections: u32,
    /// Never listen for knocks of other processes; a pooler in transaction mode cannot pass them on.
    pub poll_only: bool,
    /// How long a lease stands without being renewed.
    pub lease_ttl: Duration,
}

pub(super) fn merge(
    document: &Document,
    environment: &Environment,
    lease_ttl_ms: u64,
    violations: &mut Vec<ConfigViolation>,
) -> PostgresConfig {
    let section = &document.file.postgres;
    let (place, schema) = match environment.get(Variable::WERKRUF_DATABASE_SCHEMA) {
        Some(schema) => (Variable::WERKRUF_DATABASE_SCHEMA.name(), schema),
        None => ("/postgres/schema", section.schema.as_deref().unwrap_or(DEFAULT_SCHEMA)),
    };
    let schema = match name_fault(schema) {
        None => schema.to_owned(),
        Some(fault) => note(violations, document.violation(place, fault), DEFAULT_SCHEMA.to_owned()),
    };
    let (place, connections) = match environment.get(Variable::WERKRUF_DATABASE_CONNECTIONS) {
        Some(text) => (Variable::WERKRUF_DATABASE_CONNECTIONS.name(), text.trim().parse().ok()),
        None => ("/postgres/connections", Some(section.connections.unwrap_or(DEFAULT_CONNECTIONS))),
    };
    let connections = match connections.filter(|count| (2..=MOST_CONNECTIONS).contains(count)) {
        Some(connections) => connections,
        None => {
            let message = format!("takes a whole number from 2 to {MOST_CONNECTIONS}");
            note(violations, document.violation(place, message), DEFAULT_CONNECTIONS)
        }
    };
    let poll_only = switch(environment, Variable::WERKRUF_DATABASE_POLL_ONLY, violations).unwrap_or(section.poll_only);
    PostgresConfig { schema, connections, poll_only, lease_ttl: Duration::from_millis(lease_ttl_ms) }
}

/// Names that need no quotes anywhere, so that nobody has to think of them.
fn name_fault(name: &str) -> Option<&'static str> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !plain || !begins || name.len() > LONGEST_NAME {
        return Some("takes a plain name: a-z, 0-9 and _, beginning with a letter, 48 characters at most");
    }
    (name.starts_with("pg_") || ["public", "information_schema"].contains(&name)).then_some("names a schema that belongs to PostgreSQL")
}

#[cfg(test)]
mod tests {
    use super::name_fault;

    #[test]
    fn a_schema_is_a_plain_name_of_its_own() {
        for name in ["werkruf", "_w", "team_2"] {
            assert_eq!(name_fault(name), None, "{name}");
        }
        for name in ["", "2w", "We", "a-b", "a b", "a\"; drop", "pg_temp", "public", "ä"] {
            assert!(name_fault(name).is_some(), "{name}");
        }
        assert!(name_fault(&"x".repeat(49)).is_some());
    }
}
