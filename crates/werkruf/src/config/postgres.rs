//! `[postgres]`: settings of a PostgreSQL database.

use std::time::Duration;

use super::environment::{Environment, Variable};
use super::file::Document;
use super::merge::{reject, switch};
use super::violation::ConfigViolation;

const DEFAULT_SCHEMA: &str = "werkruf";
const DEFAULT_CONNECTIONS: u32 = 12;
const MAX_CONNECTIONS: u32 = 500;
/// PostgreSQL cuts names after 63 characters, and the schema's name is part of longer names.
const MAX_NAME_CHARACTERS: usize = 48;

/// The settings of PostgreSQL other than its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// The schema of the tables; a plain lower-case name.
    pub schema: String,
    /// The maximum number of connections of this process.
    pub connections: u32,
    /// Never use LISTEN for notifications of other processes; a pooler in transaction mode does not support it.
    pub poll_only: bool,
    /// How long a lease is valid without a heartbeat.
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
        Some(fault) => reject(violations, document.violation(place, fault), DEFAULT_SCHEMA.to_owned()),
    };
    let (place, connections) = match environment.get(Variable::WERKRUF_DATABASE_CONNECTIONS) {
        Some(text) => (Variable::WERKRUF_DATABASE_CONNECTIONS.name(), text.trim().parse().ok()),
        None => ("/postgres/connections", Some(section.connections.unwrap_or(DEFAULT_CONNECTIONS))),
    };
    let connections = match connections.filter(|count| (2..=MAX_CONNECTIONS).contains(count)) {
        Some(connections) => connections,
        None => {
            let message = format!("takes a whole number from 2 to {MAX_CONNECTIONS}");
            reject(violations, document.violation(place, message), DEFAULT_CONNECTIONS)
        }
    };
    let poll_only = switch(environment, Variable::WERKRUF_DATABASE_POLL_ONLY, violations).unwrap_or(section.poll_only);
    PostgresConfig { schema, connections, poll_only, lease_ttl: Duration::from_millis(lease_ttl_ms) }
}

/// Allows only names that never need quotes in SQL.
fn name_fault(name: &str) -> Option<&'static str> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !plain || !begins || name.len() > MAX_NAME_CHARACTERS {
        return Some("takes a plain name: a-z, 0-9 and _, beginning with a letter, 48 characters at most");
    }
    (name.starts_with("pg_") || ["public", "information_schema"].contains(&name)).then_some("names a schema that belongs to PostgreSQL")
}

#[cfg(test)]
mod tests {
    use super::name_fault;

    #[test]
    fn a_schema_has_a_plain_name_that_is_not_reserved() {
        for name in ["werkruf", "_w", "team_2"] {
            assert_eq!(name_fault(name), None, "{name}");
        }
        for name in ["", "2w", "We", "a-b", "a b", "a\"; drop", "pg_temp", "public", "ä"] {
            assert!(name_fault(name).is_some(), "{name}");
        }
        assert!(name_fault(&"x".repeat(49)).is_some());
    }
}
