//! The tables and rows of another program's database, before they are planned.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::Fields;
use crate::LegacyReport;

const CONVERSATIONS: [&str; 4] = ["conversations", "chats", "conversation", "chat"];
const MESSAGES: [&str; 3] = ["messages", "chat_messages", "message"];
const CALLS: [&str; 2] = ["tool_calls", "tool_call"];

/// The rows that can be imported.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) conversations: Vec<Fields>,
    pub(crate) messages: Vec<Fields>,
    pub(crate) calls: Vec<Fields>,
}

/// The tables of the source, with their names there.
pub(crate) struct Tables {
    known: [Option<String>; 3],
    unknown: Vec<String>,
}

impl Tables {
    /// Chooses among the tables of the source, by lower-case name; the error is the reason why nothing can be imported.
    pub(crate) fn choose(tables: &BTreeMap<String, String>) -> Result<Self, String> {
        if tables.contains_key("schema_migrations") && tables.contains_key("leases") {
            return Err(
                "this is a database of werkruf itself; `werkruf restore` takes a backup, `werkruf move` a whole database".to_owned()
            );
        }
        let find = |names: &[&str]| names.iter().find_map(|name| tables.get(*name)).cloned();
        let known = [find(&CONVERSATIONS), find(&MESSAGES), find(&CALLS)];
        if known[1..].iter().all(Option::is_none) {
            return Err("it has neither messages nor tool_calls (or tool_call)".to_owned());
        }
        let unknown = tables.values().filter(|table| !known.contains(&Some((*table).clone()))).cloned().collect();
        Ok(Self { known, unknown })
    }

    /// The tables to read, in the order [`Source::new`] takes their rows.
    pub(crate) fn known(&self) -> &[Option<String>; 3] {
        &self.known
    }

    /// The tables that cannot be imported.
    pub(crate) fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Reports how many rows were read, and which tables are skipped.
    pub(crate) fn note(&self, rows: &[Vec<Fields>], unknown: &[i64], report: &mut LegacyReport) {
        for (table, rows) in self.known.iter().zip(rows) {
            if let Some(table) = table {
                report.read.insert(table.clone(), u64::try_from(rows.len()).unwrap_or(u64::MAX));
            }
        }
        for (table, rows) in self.unknown.iter().zip(unknown).filter(|(_, rows)| **rows > 0) {
            report.skip(table, &Value::Null, format!("unknown table with {rows} row(s)"));
        }
    }
}

impl Source {
    /// Takes the rows of the known tables, in the order of [`Tables::known`].
    pub(crate) fn new(rows: Vec<Vec<Fields>>) -> Self {
        let mut lists = rows.into_iter();
        let mut next = || lists.next().unwrap_or_default();
        Self { conversations: next(), messages: next(), calls: next() }
    }
}
