//! What a database keeps of documents. It stores and hands back; words, scores and vectors mean nothing to it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::chunks::Chunk;
use crate::{JsonText, NewUsage, StoreFuture};

/// The collection where nobody names one.
pub const DEFAULT_COLLECTION: &str = "default";

/// A removal is remembered for this many changes; an index that knows less is built anew.
pub const REMEMBERED_CHANGES: i64 = 10_000;

/// A document cut into its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    pub id: Uuid,
    /// As given by whoever brought it.
    pub document_id: String,
    pub title: String,
    /// A code, as given or guessed.
    pub language: Option<String>,
    /// Whether the language was found in the text.
    pub guessed: bool,
    pub metadata: JsonText,
    /// Of everything above and the text; the same digest changes nothing.
    pub digest: String,
    /// With the ids they get.
    pub chunks: Vec<(Uuid, Chunk)>,
}

/// Documents of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocuments {
    pub tenant_id: Uuid,
    pub collection: String,
    pub ingestion_run_id: String,
    pub documents: Vec<NewDocument>,
    pub now: Timestamp,
}

/// What became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// New ones.
    pub accepted: u64,
    pub replaced: u64,
    pub unchanged: u64,
    /// Chunks written.
    pub chunks: u64,
}

/// A stored document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRow {
    pub document_id: String,
    pub collection: String,
    pub title: String,
    pub language: Option<String>,
    pub metadata: JsonText,
    pub digest: String,
    pub version: i64,
    pub chunks: i64,
    pub ingestion_run_id: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A collection and how far its vectors are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionRow {
    pub name: String,
    pub change: i64,
    pub documents: i64,
    pub chunks: i64,
    /// With a vector of the model that was asked for.
    pub embedded: i64,
    /// Refused by that model.
    pub failed: i64,
    /// Documents per language; `guessed` as in [`NewDocument`].
    pub languages: Vec<LanguageCount>,
}

/// How many documents are in a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageCount {
    pub code: Option<String>,
    pub guessed: bool,
    pub documents: i64,
}

/// A chunk as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRow {
    pub number: i64,
    pub id: Uuid,
    pub document_id: String,
    pub title: String,
    pub heading: String,
    pub content: String,
}

/// A place in the log of a collection's changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeMark {
    pub change: i64,
    pub chunk: i64,
}

/// A chunk as an index reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedChunk {
    pub mark: ChangeMark,
    pub document_id: Arc<str>,
    pub position: u32,
    pub language: Option<String>,
    pub title: String,
    pub heading: String,
    pub content: String,
}

/// A vector as an index reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedVector {
    pub mark: ChangeMark,
    pub vector: Vec<f32>,
}

/// A chunk that has no vector of the model yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnembeddedChunk {
    pub number: i64,
    pub tenant_id: Uuid,
    pub collection: String,
    pub title: String,
    pub heading: String,
    pub content: String,
}

/// A chunk's vector; `None` where the model refused the text.
#[derive(Debug, Clone, PartialEq)]
pub struct NewVector {
    pub number: i64,
    pub vector: Option<Vec<f32>>,
}

/// Who is billed for a request outside a turn's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageOwner {
    pub tenant_id: Uuid,
    /// Empty where no person asked.
    pub user_id: String,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Option<Uuid>,
}

/// Documents, their chunks and vectors. Every method sees one tenant, but for the two that feed the embedder.
pub trait Knowledge: Send + Sync {
    /// One commit: new documents are added, changed ones replaced, unchanged ones left alone.
    fn add_documents(&self, batch: NewDocuments) -> StoreFuture<'_, Added>;
    fn document(&self, tenant_id: Uuid, collection: String, document_id: String) -> StoreFuture<'_, Option<DocumentRow>>;
    /// The documents after this id, by id.
    fn documents(&self, tenant_id: Uuid, collection: String, after: Option<String>, limit: u32) -> StoreFuture<'_, Vec<DocumentRow>>;
    /// A document's chunks in their order.
    fn document_chunks(&self, tenant_id: Uuid, collection: String, document_id: String) -> StoreFuture<'_, Vec<ChunkRow>>;
    /// Removes a document with its chunks and vectors, from the files too; false when there is none.
    fn delete_document(&self, tenant_id: Uuid, collection: String, document_id: String) -> StoreFuture<'_, bool>;
    fn collections(&self, tenant_id: Uuid) -> StoreFuture<'_, Vec<String>>;
    /// A collection with its counts; vectors are counted for this model.
    fn collection(&self, tenant_id: Uuid, name: String, model: Option<String>) -> StoreFuture<'_, Option<CollectionRow>>;
    /// The newest change of a collection; `None` when there is no such collection. SearchQuery before every search.
    fn newest_change(&self, tenant_id: Uuid, collection: String) -> StoreFuture<'_, Option<i64>>;
    /// Chunks after `after` up to change `until`, in the order of the log.
    fn changed_chunks(
        &self,
        tenant_id: Uuid,
        collection: String,
        after: ChangeMark,
        until: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ChangedChunk>>;
    /// Vectors of a model, likewise.
    fn changed_vectors(
        &self,
        tenant_id: Uuid,
        collection: String,
        model: String,
        after: ChangeMark,
        until: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ChangedVector>>;
    /// Chunks removed after change `after`.
    fn removed_chunks(&self, tenant_id: Uuid, collection: String, after: i64) -> StoreFuture<'_, Vec<i64>>;
    /// The chunks with these numbers that are still there.
    fn chunks(&self, tenant_id: Uuid, numbers: Vec<i64>) -> StoreFuture<'_, Vec<ChunkRow>>;
    /// Of all tenants: chunks after this number without a vector of the model, by number.
    fn unembedded(&self, model: String, after: i64, limit: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>>;
    /// The same for the next batch to embed. Where several processes share the database, these chunks are this owner's until it lets go of
    /// them or is not heard of for [`Self::claim_ttl`].
    fn claim_unembedded(&self, model: String, owner: Uuid, limit: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>> {
        let _ = owner;
        self.unembedded(model, 0, limit)
    }
    /// How long a claim stands without being renewed; `None` where one process holds the database for its life.
    fn claim_ttl(&self) -> Option<Duration> {
        None
    }
    /// Renews every claim of this owner.
    fn renew_claims(&self, owner: Uuid) -> StoreFuture<'_, ()> {
        let _ = owner;
        Box::pin(async { Ok(()) })
    }
    /// Lets go of every claim of this owner.
    fn release_claims(&self, owner: Uuid) -> StoreFuture<'_, ()> {
        let _ = owner;
        Box::pin(async { Ok(()) })
    }
    /// Keeps vectors of one model; those whose chunk is gone are dropped. How many were kept.
    fn put_vectors(&self, model: String, vectors: Vec<NewVector>) -> StoreFuture<'_, u64>;
    /// What a request for knowledge cost; again under the same id, what it cost after all.
    fn bill(&self, who: UsageOwner, usage: NewUsage, now: Timestamp) -> StoreFuture<'_, ()>;
    /// Takes a bill back, for a request that never left.
    fn delete_usage(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, ()>;
}
