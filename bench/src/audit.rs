//! What must stand in Werkruf's database after the load: a run whose rows are wrong measured something else.
//!
//! The counts are exact: every answered turn left its rows once, and nothing else is there.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// How much was done, by seeding and by the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    turns: u64,
    calls: u64,
    /// Of conversations that were held elsewhere.
    older_messages: u64,
}

impl Expected {
    /// So many turns with so many calls each, one call to a step.
    pub const fn turns(&mut self, turns: u64, calls: u64) {
        self.turns += turns;
        self.calls += turns * calls;
    }

    /// Messages that no turn wrote.
    pub const fn older_messages(&mut self, messages: u64) {
        self.older_messages += messages;
    }
}

/// Reads the whole file and says everything that is wrong with it; nothing is what should come.
pub fn audit(path: &Path, expected: &Expected) -> Result<Vec<String>, String> {
    let read = || -> rusqlite::Result<Vec<String>> {
        let connection = open(path)?;
        let number =
            |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|found| u64::try_from(found).unwrap_or_default());
        let mut wrong = Vec::new();
        for (what, sql, wanted) in counts(expected) {
            let found = number(sql)?;
            if found != wanted {
                wrong.push(format!("{what}: {found}, not {wanted}"));
            }
        }
        for (what, sql) in NEVER {
            let found = number(sql)?;
            if found > 0 {
                wrong.push(format!("{what}: {found}"));
            }
        }
        let sound: String = connection.query_row("PRAGMA quick_check", [], |row| row.get(0))?;
        if sound != "ok" {
            wrong.push(format!("the file is damaged: {sound}"));
        }
        Ok(wrong)
    };
    read().map_err(|error| format!("the database cannot be read: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "an auditor looks from outside, and only looks")]
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
        ("calls that succeeded at once", SUCCEEDED, calls),
        ("messages", "SELECT count(*) FROM messages", older_messages + 2 * turns + 2 * calls),
        ("beginnings", "SELECT count(DISTINCT turn_id) FROM events WHERE type = 'init'", turns),
        ("ends", "SELECT count(DISTINCT turn_id) FROM events WHERE type = 'final'", turns),
        ("calls begun", "SELECT count(*) FROM events WHERE type = 'tool_started'", calls),
        ("events", "SELECT count(*) FROM events", 2 * turns + 2 * calls),
        ("bills", "SELECT count(*) FROM api_usage", turns + calls),
    ]
}

const SUCCEEDED: &str = "SELECT count(*) FROM tool_calls
    WHERE status = 'succeeded' AND attempt = 1 AND response IS NOT NULL AND started_at IS NOT NULL AND finished_at IS NOT NULL";

const NEVER: [(&str, &str); 5] = [
    ("leases still held", "SELECT count(*) FROM leases WHERE owner IS NOT NULL"),
    (
        "conversations with holes among their events",
        "SELECT count(*) FROM leases l LEFT JOIN (SELECT conversation_id, count(*) n, max(seq) m FROM events GROUP BY 1) e
           USING (conversation_id) WHERE l.next_event_seq <> 1 + coalesce(e.n, 0) OR coalesce(e.n, 0) <> coalesce(e.m, 0)",
    ),
    (
        "conversations with holes among their messages",
        "SELECT count(*) FROM leases l LEFT JOIN (SELECT conversation_id, count(seq) n, max(seq) m FROM messages GROUP BY 1) e
           USING (conversation_id) WHERE l.next_message_seq <> 1 + coalesce(e.n, 0) OR coalesce(e.n, 0) <> coalesce(e.m, 0)",
    ),
    ("messages without a place", "SELECT count(*) FROM messages WHERE seq IS NULL"),
    (
        "calls whose result does not follow directly",
        "SELECT count(*) FROM messages a LEFT JOIN messages t ON t.conversation_id = a.conversation_id AND t.seq = a.seq + 1
           WHERE a.tool_calls IS NOT NULL AND t.tool_call_id IS NOT json_extract(a.tool_calls, '$[0].id')",
    ),
];

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
