//! Store implementations for checking a configuration without a database. Tools can be built on them, but every access
//! fails with "no database is open".

#[cfg(feature = "flights")]
use std::time::Duration;

use jiff::Timestamp;
#[cfg(feature = "flights")]
use jiff::civil::Date;
use werkruf_contract::Uuid;
use werkruf_knowledge::{
    Added, ChangePage, ChangedChunk, ChangedVector, ChunkRow, CollectionRights, CollectionRow, DocumentRow, Grantee, Knowledge,
    LanguageCount, NewDocuments, NewRights, NewVector, ReadableCollection, TermScan, Trust, UnembeddedChunk,
};
use werkruf_store::{Author, StoreError, StoreFuture};
#[cfg(feature = "flights")]
use werkruf_store::{ProviderAccount, SealedToken};
use werkruf_workspace::{
    ArticleQuery, ArticleRow, Listing, PersonRow, RequestDraft, RowScope, WorkQuery, WorkRow, Workspace, WorktimeQuery, WorktimeRow,
};

#[derive(Debug, Clone, Copy)]
pub struct ClosedStore;

fn closed<T: Send + 'static>() -> StoreFuture<'static, T> {
    Box::pin(std::future::ready(Err(StoreError::Unavailable("no database is open".to_owned()))))
}

impl Workspace for ClosedStore {
    fn requests(&self, _: Uuid, _: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>> {
        closed()
    }

    fn tasks(&self, _: Uuid, _: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>> {
        closed()
    }

    fn worktimes(&self, _: Uuid, _: WorktimeQuery) -> StoreFuture<'_, Listing<WorktimeRow>> {
        closed()
    }

    fn articles(&self, _: Uuid, _: ArticleQuery) -> StoreFuture<'_, Listing<ArticleRow>> {
        closed()
    }

    fn person(&self, _: Uuid, _: RowScope) -> StoreFuture<'_, Option<PersonRow>> {
        closed()
    }

    fn create_request(&self, _: Uuid, _: RequestDraft, _: Timestamp) -> StoreFuture<'_, Option<WorkRow>> {
        closed()
    }
}

impl Knowledge for ClosedStore {
    fn add_documents(&self, _: NewDocuments) -> StoreFuture<'_, Added> {
        closed()
    }

    fn document(&self, _: Grantee, _: String, _: String) -> StoreFuture<'_, Option<DocumentRow>> {
        closed()
    }

    fn documents(&self, _: Grantee, _: String, _: Option<String>, _: u32) -> StoreFuture<'_, Vec<DocumentRow>> {
        closed()
    }

    fn document_chunks(&self, _: Grantee, _: String, _: String) -> StoreFuture<'_, Vec<ChunkRow>> {
        closed()
    }

    fn delete_document(&self, _: Uuid, _: String, _: String) -> StoreFuture<'_, bool> {
        closed()
    }

    fn collections(&self, _: Grantee) -> StoreFuture<'_, Vec<String>> {
        closed()
    }

    fn all_collections(&self) -> StoreFuture<'_, Vec<(Uuid, String)>> {
        closed()
    }

    fn collection_languages(&self, _: Uuid, _: String) -> StoreFuture<'_, Vec<LanguageCount>> {
        closed()
    }

    fn scan_terms(&self, _: Uuid, _: String, _: TermScan) -> StoreFuture<'_, TermScan> {
        closed()
    }

    fn vector_size(&self, _: String) -> StoreFuture<'_, Option<usize>> {
        closed()
    }

    fn collection(&self, _: Grantee, _: String, _: Option<String>) -> StoreFuture<'_, Option<CollectionRow>> {
        closed()
    }

    fn newest_change(&self, _: Grantee, _: String) -> StoreFuture<'_, Option<ReadableCollection>> {
        closed()
    }

    fn rights(&self, _: Uuid, _: String) -> StoreFuture<'_, Option<CollectionRights>> {
        closed()
    }

    fn put_rights(&self, _: Uuid, _: String, _: NewRights, _: Author, _: Timestamp) -> StoreFuture<'_, Trust> {
        closed()
    }

    fn changed_chunks(&self, _: Uuid, _: String, _: ChangePage) -> StoreFuture<'_, Vec<ChangedChunk>> {
        closed()
    }

    fn changed_vectors(&self, _: Uuid, _: String, _: String, _: ChangePage) -> StoreFuture<'_, Vec<ChangedVector>> {
        closed()
    }

    fn removed_chunks(&self, _: Uuid, _: String, _: i64, _: i64) -> StoreFuture<'_, Vec<i64>> {
        closed()
    }

    fn chunks(&self, _: Uuid, _: Vec<i64>) -> StoreFuture<'_, Vec<ChunkRow>> {
        closed()
    }

    fn unembedded(&self, _: String, _: i64, _: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>> {
        closed()
    }

    fn put_vectors(&self, _: String, _: Vec<NewVector>) -> StoreFuture<'_, u64> {
        closed()
    }
}

#[cfg(feature = "flights")]
#[derive(Debug, Clone, Copy)]
pub struct ClosedFlights;

#[cfg(feature = "flights")]
impl werkruf_store::ProviderTokens for ClosedFlights {
    fn provider_token(&self, _: ProviderAccount) -> StoreFuture<'_, Option<SealedToken>> {
        closed()
    }

    fn put_provider_token(&self, _: ProviderAccount, _: SealedToken, _: Timestamp) -> StoreFuture<'_, ()> {
        closed()
    }

    fn provider_tokens(&self) -> StoreFuture<'_, Vec<(ProviderAccount, SealedToken)>> {
        closed()
    }

    fn replace_provider_token(&self, _: ProviderAccount, _: Vec<u8>, _: SealedToken, _: Timestamp) -> StoreFuture<'_, bool> {
        closed()
    }

    fn claim_token(&self, _: ProviderAccount, _: Uuid, _: Duration, _: Timestamp) -> StoreFuture<'_, bool> {
        closed()
    }

    fn release_token(&self, _: ProviderAccount, _: Uuid) -> StoreFuture<'_, ()> {
        closed()
    }
}

#[cfg(feature = "flights")]
impl werkruf_flights::FlightStore for ClosedFlights {
    fn spend_call(&self, _: ProviderAccount, _: Date, _: u32) -> StoreFuture<'_, Option<i64>> {
        closed()
    }

    fn calls_left(&self, _: ProviderAccount, _: Date, _: i64, _: i64) -> StoreFuture<'_, ()> {
        closed()
    }

    fn close_day(&self, _: ProviderAccount, _: Date) -> StoreFuture<'_, ()> {
        closed()
    }

    fn cached_answer(&self, _: Uuid, _: String, _: Timestamp) -> StoreFuture<'_, Option<String>> {
        closed()
    }

    fn cache_answer(&self, _: Uuid, _: String, _: String, _: Timestamp, _: Timestamp) -> StoreFuture<'_, ()> {
        closed()
    }
}
