//! The schema of a database, compared with the schema of this binary.

use serde::Serialize;

/// What `migrate --check` reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaReport {
    /// The schema number of the database: how many migrations it has. 0 for a new one.
    pub found: i64,
    /// The schema number of this binary.
    pub known: i64,
    /// Names of the migrations that are missing, in order.
    pub pending: Vec<String>,
}
