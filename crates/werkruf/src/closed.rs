//! A workspace nobody opened, for looking at a configuration without a database: the tools have names, but no rows.

use jiff::Timestamp;
use werkruf_contract::Uuid;
use werkruf_store::{
    Answer, ArticleQuery, ArticleRow, Found, ImportFault, ImportReport, PersonRow, Reach, RequestDraft, StoreError, WorkQuery, WorkRow,
    Workspace, WorkspaceBatch, WorktimeQuery, WorktimeRow,
};

/// Answers that it is closed.
#[derive(Debug, Clone, Copy)]
pub struct ClosedWorkspace;

fn closed<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(std::future::ready(Err(StoreError::Unavailable("no database is open".to_owned()))))
}

impl Workspace for ClosedWorkspace {
    fn requests(&self, _: Uuid, _: WorkQuery) -> Answer<'_, Found<WorkRow>> {
        closed()
    }

    fn tasks(&self, _: Uuid, _: WorkQuery) -> Answer<'_, Found<WorkRow>> {
        closed()
    }

    fn worktimes(&self, _: Uuid, _: WorktimeQuery) -> Answer<'_, Found<WorktimeRow>> {
        closed()
    }

    fn articles(&self, _: Uuid, _: ArticleQuery) -> Answer<'_, Found<ArticleRow>> {
        closed()
    }

    fn person(&self, _: Uuid, _: Reach) -> Answer<'_, Option<PersonRow>> {
        closed()
    }

    fn create_request(&self, _: Uuid, _: RequestDraft, _: Timestamp) -> Answer<'_, Option<WorkRow>> {
        closed()
    }

    fn import(&self, _: WorkspaceBatch, _: Uuid, _: Timestamp) -> Answer<'_, Result<ImportReport, Vec<ImportFault>>> {
        closed()
    }
}
