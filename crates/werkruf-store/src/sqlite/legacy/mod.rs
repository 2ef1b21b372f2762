//! [`Legacy`] on SQLite: writes the plan of an import conversation by conversation, and reads SQLite files of other programs.
//!
//! Invariants: the source is only read; every row of it is written or skipped with a reason; a conversation and its rows are
//! written in one transaction; ids are the same at every import, so importing again writes only new rows.

mod source;
mod write;

pub(crate) use source::read;

use std::path::Path;
use std::sync::Arc;

use werkruf_contract::BoxFuture;

use super::SqliteStore;
use crate::legacy::{BATCH, prepare};
use crate::{Legacy, LegacyError, LegacyImport, LegacyReport, LegacySource};
use write::Writing;

impl Legacy for SqliteStore {
    fn import_legacy(&self, import: LegacyImport) -> BoxFuture<'_, Result<LegacyReport, LegacyError>> {
        Box::pin(self.import_all(import))
    }
}

impl SqliteStore {
    async fn import_all(&self, import: LegacyImport) -> Result<LegacyReport, LegacyError> {
        if let LegacySource::Sqlite(file) = &import.source
            && same_file(file, &self.path)
        {
            return Err(LegacyError::Source { name: import.source.to_string(), why: "this is the database itself".to_owned() });
        }
        let LegacyImport { source, tenant_id, user_id, max_state_bytes, dry_run } = import;
        let (plan, mut report) = prepare(source, tenant_id, max_state_bytes).await?;
        let plan = Arc::new(plan);
        let writing = Writing { tenant_id, user_id, dry_run };
        for from in (0..plan.conversations.len()).step_by(BATCH) {
            let (plan, writing, mut so_far) = (Arc::clone(&plan), writing.clone(), report);
            let work = move |c: &rusqlite::Connection| {
                for planned in plan.conversations.iter().skip(from).take(BATCH) {
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

fn same_file(one: &Path, two: &Path) -> bool {
    matches!((std::fs::canonicalize(one), std::fs::canonicalize(two)), (Ok(one), Ok(two)) if one == two)
}

#[cfg(test)]
#[path = "../legacy_tests.rs"]
mod tests;
