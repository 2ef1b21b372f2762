//! A workspace and a ledger nobody opened, for looking at a configuration without a database: the tools have names, but no rows.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use werkruf_contract::Uuid;
use werkruf_store::knowledge::{
    Added, Billed, ChangeMark, ChangedChunk, ChangedVector, ChunkRow, CollectionRow, DocumentRow, Knowledge, NewDocuments, NewVector,
    UnembeddedChunk,
};
use werkruf_store::{
    Answer, ArticleQuery, ArticleRow, Found, ImportFault, ImportReport, Ledger, NewUsage, PersonRow, ProviderAccount, Reach, RequestDraft,
    SealedToken, StoreError, WorkQuery, WorkRow, Workspace, WorkspaceBatch, WorktimeQuery, WorktimeRow,
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

impl Knowledge for ClosedWorkspace {
    fn add_documents(&self, _: NewDocuments) -> Answer<'_, Added> {
        closed()
    }

    fn document(&self, _: Uuid, _: String, _: String) -> Answer<'_, Option<DocumentRow>> {
        closed()
    }

    fn documents(&self, _: Uuid, _: String, _: Option<String>, _: u32) -> Answer<'_, Vec<DocumentRow>> {
        closed()
    }

    fn document_chunks(&self, _: Uuid, _: String, _: String) -> Answer<'_, Vec<ChunkRow>> {
        closed()
    }

    fn delete_document(&self, _: Uuid, _: String, _: String) -> Answer<'_, bool> {
        closed()
    }

    fn collections(&self, _: Uuid) -> Answer<'_, Vec<String>> {
        closed()
    }

    fn collection(&self, _: Uuid, _: String, _: Option<String>) -> Answer<'_, Option<CollectionRow>> {
        closed()
    }

    fn newest_change(&self, _: Uuid, _: String) -> Answer<'_, Option<i64>> {
        closed()
    }

    fn changed_chunks(&self, _: Uuid, _: String, _: ChangeMark, _: i64, _: u32) -> Answer<'_, Vec<ChangedChunk>> {
        closed()
    }

    fn changed_vectors(&self, _: Uuid, _: String, _: String, _: ChangeMark, _: i64, _: u32) -> Answer<'_, Vec<ChangedVector>> {
        closed()
    }

    fn removed_chunks(&self, _: Uuid, _: String, _: i64) -> Answer<'_, Vec<i64>> {
        closed()
    }

    fn chunks(&self, _: Uuid, _: Vec<i64>) -> Answer<'_, Vec<ChunkRow>> {
        closed()
    }

    fn unembedded(&self, _: String, _: i64, _: u32) -> Answer<'_, Vec<UnembeddedChunk>> {
        closed()
    }

    fn put_vectors(&self, _: String, _: Vec<NewVector>) -> Answer<'_, u64> {
        closed()
    }

    fn bill(&self, _: Billed, _: NewUsage, _: Timestamp) -> Answer<'_, ()> {
        closed()
    }

    fn strike_bill(&self, _: Uuid, _: Uuid) -> Answer<'_, ()> {
        closed()
    }
}

/// Counts and keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct ClosedLedger;

impl Ledger for ClosedLedger {
    fn spend_call(&self, _: ProviderAccount, _: Date, _: u32) -> Answer<'_, Option<i64>> {
        closed()
    }

    fn calls_left(&self, _: ProviderAccount, _: Date, _: i64, _: i64) -> Answer<'_, ()> {
        closed()
    }

    fn close_day(&self, _: ProviderAccount, _: Date) -> Answer<'_, ()> {
        closed()
    }

    fn provider_token(&self, _: ProviderAccount) -> Answer<'_, Option<SealedToken>> {
        closed()
    }

    fn keep_provider_token(&self, _: ProviderAccount, _: SealedToken, _: Timestamp) -> Answer<'_, ()> {
        closed()
    }

    fn claim_token(&self, _: ProviderAccount, _: Uuid, _: Duration, _: Timestamp) -> Answer<'_, bool> {
        closed()
    }

    fn release_token(&self, _: ProviderAccount, _: Uuid) -> Answer<'_, ()> {
        closed()
    }

    fn kept_answer(&self, _: Uuid, _: String, _: Timestamp) -> Answer<'_, Option<String>> {
        closed()
    }

    fn keep_answer(&self, _: Uuid, _: String, _: String, _: Timestamp, _: Timestamp) -> Answer<'_, ()> {
        closed()
    }
}
