//! Checks Werkruf's database after the load: a run with wrong rows did not measure what it claims.
//!
//! The counts are exact: every answered turn has its rows exactly once, and there are no other rows.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use tokio_postgres::NoTls;

use crate::stage::Database;

/// The expected number of rows, from seeding and from the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    turns: u64,
    calls: u64,
    /// Messages of imported conversations.
    older_messages: u64,
}

impl Expected {
    /// Adds turns with this number of calls each, one call per step.
    pub const fn turns(&mut self, turns: u64, calls: u64) {
        self.turns += turns;
        self.calls += turns * calls;
    }

    /// Adds messages that no turn wrote.
    pub const fn older_messages(&mut self, messages: u64) {
        self.older_messages += messages;
    }
}

/// Reads the whole database and returns every deviation; an empty list means that the database is correct.
pub async fn audit(database: &Database, expected: &Expected) -> Result<Vec<String>, String> {
    match database {
        Database::File(file) => in_file(file, expected).map_err(|error| format!("the database cannot be read: {error}")),
        Database::Schema { url, name } => in_schema(url, name, expected).await.map_err(|error| format!("{name} cannot be read: {error}")),
    }
}

fn in_file(path: &Path, expected: &Expected) -> rusqlite::Result<Vec<String>> {
    let connection = open(path)?;
    let mut deviations = Vec::new();
    for (what, sql, wanted) in queries(expected, IN_SQLITE) {
        let found: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        deviations.extend(differs(what, found, wanted));
    }
    let check: String = connection.query_row("PRAGMA quick_check", [], |row| row.get(0))?;
    if check != "ok" {
        deviations.push(format!("the file is damaged: {check}"));
    }
    Ok(deviations)
}

/// Reads with the operator role, which sees all tenants. Drops the schema afterwards.
async fn in_schema(url: &str, schema: &str, expected: &Expected) -> Result<Vec<String>, tokio_postgres::Error> {
    let client = connect(url).await?;
    client.batch_execute(&format!("SET search_path TO {schema}; SET ROLE werkruf_operator")).await?;
    let mut deviations = Vec::new();
    for (what, sql, wanted) in queries(expected, IN_POSTGRES) {
        let found: i64 = client.query_one(sql, &[]).await?.get(0);
        deviations.extend(differs(what, found, wanted));
    }
    client.batch_execute(&format!("RESET ROLE; DROP SCHEMA {schema} CASCADE")).await?;
    Ok(deviations)
}

/// Drops the schema of a database that is one.
pub async fn drop_schema(database: &Database) -> Result<(), String> {
    let Database::Schema { url, name } = database else { return Ok(()) };
    let dropped = async { connect(url).await?.batch_execute(&format!("DROP SCHEMA {name} CASCADE")).await };
    dropped.await.map_err(|error: tokio_postgres::Error| format!("{name} cannot be dropped: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "the connection's own task, which ends with it")]
async fn connect(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

fn differs(what: &str, found: i64, wanted: u64) -> Option<String> {
    let found = u64::try_from(found).unwrap_or_default();
    (found != wanted).then(|| if wanted == 0 { format!("{what}: {found}") } else { format!("{what}: {found}, not {wanted}") })
}

/// The queries with their expected counts; those of `NEVER` must be zero.
fn queries(expected: &Expected, misplaced: &'static str) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let never = NEVER.into_iter().chain([("calls whose result does not follow directly", misplaced)]);
    counts(expected).into_iter().chain(never.map(|(what, sql)| (what, sql, 0)))
}

#[expect(clippy::disallowed_methods, reason = "the audit opens the file itself, read-only")]
fn open(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

const fn counts(expected: &Expected) -> [(&'static str, &'static str, u64); 11] {
    let Expected { turns, calls, older_messages } = *expected;
    [
        ("turns", "SELECT count(*) FROM turns", turns),
        ("completed turns", "SELECT count(*) FROM turns WHERE status = 'completed' AND finished_at IS NOT NULL AND error IS NULL", turns),
        ("inbox keys", "SELECT count(DISTINCT turn_id) FROM inbox", turns),
        ("calls", "SELECT count(*) FROM tool_calls", calls),
        ("calls that succeeded at the first attempt", SUCCEEDED, calls),
        ("messages", "SELECT count(*) FROM messages", older_messages + 2 * turns + 2 * calls),
        ("init events", "SELECT count(DISTINCT turn_id) FROM events WHERE type = 'init'", turns),
        ("final events", "SELECT count(DISTINCT turn_id) FROM events WHERE type = 'final'", turns),
        ("tool_started events", "SELECT count(*) FROM events WHERE type = 'tool_started'", calls),
        ("events", "SELECT count(*) FROM events", 2 * turns + 2 * calls),
        ("usage rows", "SELECT count(*) FROM api_usage", turns + calls),
    ]
}

const SUCCEEDED: &str = "SELECT count(*) FROM tool_calls
    WHERE status = 'succeeded' AND attempt = 1 AND response IS NOT NULL AND started_at IS NOT NULL AND finished_at IS NOT NULL";

const NEVER: [(&str, &str); 4] = [
    ("leases still held", "SELECT count(*) FROM leases WHERE owner IS NOT NULL"),
    (
        "conversations with gaps in their event numbers",
        "SELECT count(*) FROM leases l LEFT JOIN (SELECT conversation_id, count(*) n, max(seq) m FROM events GROUP BY 1) e
           USING (conversation_id) WHERE l.next_event_seq <> 1 + coalesce(e.n, 0) OR coalesce(e.n, 0) <> coalesce(e.m, 0)",
    ),
    (
        "conversations with gaps in their message numbers",
        "SELECT count(*) FROM leases l LEFT JOIN (SELECT conversation_id, count(seq) n, max(seq) m FROM messages GROUP BY 1) e
           USING (conversation_id) WHERE l.next_message_seq <> 1 + coalesce(e.n, 0) OR coalesce(e.n, 0) <> coalesce(e.m, 0)",
    ),
    ("messages without a number", "SELECT count(*) FROM messages WHERE seq IS NULL"),
];

const IN_SQLITE: &str =
    "SELECT count(*) FROM messages a LEFT JOIN messages t ON t.conversation_id = a.conversation_id AND t.seq = a.seq + 1
    WHERE a.tool_calls IS NOT NULL AND t.tool_call_id IS NOT json_extract(a.tool_calls, '$[0].id')";

const IN_POSTGRES: &str =
    "SELECT count(*) FROM messages a LEFT JOIN messages t ON t.conversation_id = a.conversation_id AND t.seq = a.seq + 1
    WHERE a.tool_calls IS NOT NULL AND t.tool_call_id IS DISTINCT FROM a.tool_calls->0->>'id'";

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
