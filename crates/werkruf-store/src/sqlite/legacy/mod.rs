//! [`Legacy`] on SQLite: an older program's file (seeds 000, 001 and 004) read once, planned, and written conversation by conversation.
//!
//! Invariants: the other file is only read; every row of it is written or skipped with a reason; a conversation and what is in
//! it come in one transaction; ids come out the same every time, so importing again writes only what is new.

mod call;
mod fields;
mod ids;
mod message;
mod plan;
mod source;
mod write;

use std::path::Path;
use std::sync::Arc;

use werkruf_contract::{BoxFuture, Uuid};

use super::SqliteStore;
use crate::{Legacy, LegacyError, LegacyImport, LegacyReport, StoreError};
use plan::Plan;
use write::Writing;

/// Conversations written in one go: others who write wait no longer than that.
const AT_ONCE: usize = 20;

impl Legacy for SqliteStore {
    fn take_in(&self, import: LegacyImport) -> BoxFuture<'_, Result<LegacyReport, LegacyError>> {
        Box::pin(self.take_in_all(import))
    }
}

impl SqliteStore {
    async fn take_in_all(&self, import: LegacyImport) -> Result<LegacyReport, LegacyError> {
        if same_file(&import.source, &self.path) {
            return Err(LegacyError::Source { path: import.source, why: "this is the database itself".to_owned() });
        }
        let LegacyImport { source, tenant_id, user_id, dry_run } = import;
        // A large file takes a while to read: not on a thread that serves requests.
        let reading = tokio::task::spawn_blocking(move || read(&source, tenant_id));
        let (plan, mut report) = reading.await.map_err(|error| StoreError::Broken(format!("reading did not end: {error}")))??;
        let plan = Arc::new(plan);
        let writing = Writing { tenant_id, user_id, dry_run };
        for from in (0..plan.conversations.len()).step_by(AT_ONCE) {
            let (plan, writing, mut so_far) = (Arc::clone(&plan), writing.clone(), report);
            let work = move |c: &rusqlite::Connection| {
                for planned in plan.conversations.iter().skip(from).take(AT_ONCE) {
                    writing.conversation(c, planned, &mut so_far)?;
                }
                Ok(so_far)
            };
            report = if dry_run { self.readers.list(work).await? } else { self.writer.submit(work).await? };
        }
        let mut so_far = report;
        let work = move |c: &rusqlite::Connection| {
            for call in &plan.loose {
                writing.loose(c, call, &mut so_far)?;
            }
            Ok(so_far)
        };
        Ok(if dry_run { self.readers.list(work).await? } else { self.writer.submit(work).await? })
    }
}

fn read(path: &Path, tenant_id: Uuid) -> Result<(Plan, LegacyReport), LegacyError> {
    let mut report = LegacyReport::default();
    let found = source::read(path, &mut report)?;
    for (table, rows) in [("conversations", &found.conversations), ("messages", &found.messages), ("tool_calls", &found.calls)] {
        if !rows.is_empty() {
            report.written.insert(table.to_owned(), 0);
        }
    }
    let plan = plan::plan(found, tenant_id, &mut report);
    Ok((plan, report))
}

fn same_file(one: &Path, two: &Path) -> bool {
    matches!((std::fs::canonicalize(one), std::fs::canonicalize(two)), (Ok(one), Ok(two)) if one == two)
}

#[cfg(test)]
#[path = "../legacy_tests.rs"]
mod tests;
