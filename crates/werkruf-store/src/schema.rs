//! How far a database's schema has come, beside what this binary knows.

use serde::Serialize;

/// What `migrate --check` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaReport {
    /// Number of the last migration in the database; 0 for a new one.
    pub found: i64,
    /// Number of the last migration this binary has.
    pub known: i64,
    /// Names of the migrations that are missing, in order.
    pub pending: Vec<String>,
}
