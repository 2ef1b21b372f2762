//! The stored rows of documents, chunks and vectors. The database does not interpret texts, scores or vectors.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use werkruf_contract::{Trust, Uuid};

use super::chunks::Chunk;
use super::rights::{CollectionRights, Grantee, NewRights, ReadableCollection};
use super::stored_terms::TermScan;
use werkruf_store::{Author, JsonText, StoreFuture};

/// The collection used when none is named.
pub const DEFAULT_COLLECTION: &str = "default";

/// A removal stays in the log for this many changes; an index that is further behind is rebuilt.
pub const REMEMBERED_CHANGES: i64 = 10_000;

/// A document split into chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    pub id: Uuid,
    /// The client's id of the document.
    pub document_id: String,
    pub title: String,
    /// A language code, given or guessed.
    pub language: Option<String>,
    /// Whether the language was guessed from the text. Without a code: whether the text is in a language that is not recognised; false if the text
    /// does not show its language.
    pub guessed: bool,
    pub metadata: JsonText,
    /// A digest of the fields above and the text; a document with an unchanged digest is not written.
    pub digest: String,
    /// The chunks with their new ids.
    pub chunks: Vec<(Uuid, Chunk)>,
}

/// Documents to write in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocuments {
    pub tenant_id: Uuid,
    pub collection: String,
    pub ingestion_run_id: String,
    pub documents: Vec<NewDocument>,
    pub now: Timestamp,
}

/// How many documents were written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// New documents.
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

/// A collection and the progress of its embedding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionRow {
    pub name: String,
    pub change: i64,
    pub documents: i64,
    pub chunks: i64,
    /// Chunks with a vector of the requested model.
    pub embedded: i64,
    /// Chunks that the model rejected.
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

/// A chunk for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRow {
    pub number: i64,
    pub id: Uuid,
    pub document_id: String,
    pub title: String,
    pub heading: String,
    pub content: String,
}

/// A position in the change log of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeMark {
    pub change: i64,
    pub chunk: i64,
}

/// A page of the log of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangePage {
    /// The last entry that was read.
    pub after: ChangeMark,
    /// The last change to read.
    pub until: i64,
    pub limit: u32,
}

/// A chunk as read by an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedChunk {
    pub mark: ChangeMark,
    pub document_id: Arc<str>,
    pub position: u32,
    pub language: Option<String>,
    /// As in [`NewDocument`].
    pub guessed: bool,
    pub title: String,
    pub heading: String,
    pub content: String,
}

/// A vector as read by an index.
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

/// The vector of a chunk; `None` if the model rejected the text.
#[derive(Debug, Clone, PartialEq)]
pub struct NewVector {
    pub number: i64,
    pub vector: Option<Vec<f32>>,
}

/// Documents, their chunks and vectors. Every method is restricted to one tenant, except those that the embedder uses. A method with a
/// [`Grantee`] finds a collection that the grantee may not read as little as one that does not exist.
pub trait Knowledge: Send + Sync {
    /// Adds new documents and replaces changed ones in one transaction; unchanged ones are not written.
    fn add_documents(&self, batch: NewDocuments) -> StoreFuture<'_, Added>;
    fn document(&self, grantee: Grantee, collection: String, document_id: String) -> StoreFuture<'_, Option<DocumentRow>>;
    /// The documents after this id, ordered by id.
    fn documents(&self, grantee: Grantee, collection: String, after: Option<String>, limit: u32) -> StoreFuture<'_, Vec<DocumentRow>>;
    /// The chunks of a document, in order.
    fn document_chunks(&self, grantee: Grantee, collection: String, document_id: String) -> StoreFuture<'_, Vec<ChunkRow>>;
    /// Deletes a document with its chunks and vectors; false if it does not exist.
    fn delete_document(&self, tenant_id: Uuid, collection: String, document_id: String) -> StoreFuture<'_, bool>;
    /// Removes the text of deleted documents from the database files, where that is up to the server; false if a reader prevents it for now.
    fn purge_deleted(&self) -> StoreFuture<'_, bool> {
        Box::pin(async { Ok(true) })
    }
    fn collections(&self, grantee: Grantee) -> StoreFuture<'_, Vec<String>>;
    /// The collections of all tenants.
    fn all_collections(&self) -> StoreFuture<'_, Vec<(Uuid, String)>>;
    /// The number of documents per language.
    fn collection_languages(&self, tenant_id: Uuid, name: String) -> StoreFuture<'_, Vec<LanguageCount>>;
    /// A collection with its counts; vectors are counted for this model.
    fn collection(&self, grantee: Grantee, name: String, model: Option<String>) -> StoreFuture<'_, Option<CollectionRow>>;
    /// The newest change of a collection; `None` if the collection does not exist. Called before every search.
    fn newest_change(&self, grantee: Grantee, collection: String) -> StoreFuture<'_, Option<ReadableCollection>>;
    /// The rights of a collection; `None` if it does not exist.
    fn rights(&self, tenant_id: Uuid, collection: String) -> StoreFuture<'_, Option<CollectionRights>>;
    /// Sets the rights of a collection, and returns its trust. A collection that does not exist is created, so that its rights count before its
    /// first document.
    fn put_rights(&self, tenant_id: Uuid, collection: String, rights: NewRights, by: Author, now: Timestamp) -> StoreFuture<'_, Trust>;
    /// Chunks of a page of the log, in its order.
    fn changed_chunks(&self, tenant_id: Uuid, collection: String, page: ChangePage) -> StoreFuture<'_, Vec<ChangedChunk>>;
    /// Vectors of a model of a page of the log, in its order.
    fn changed_vectors(&self, tenant_id: Uuid, collection: String, model: String, page: ChangePage) -> StoreFuture<'_, Vec<ChangedVector>>;
    /// Chunks removed after change `after` up to change `until`.
    fn removed_chunks(&self, tenant_id: Uuid, collection: String, after: i64, until: i64) -> StoreFuture<'_, Vec<i64>>;
    /// The chunks with these numbers that still exist.
    fn chunks(&self, tenant_id: Uuid, numbers: Vec<i64>) -> StoreFuture<'_, Vec<ChunkRow>>;
    /// Reads the stored terms of every chunk of a collection.
    fn scan_terms(&self, tenant_id: Uuid, collection: String, scan: TermScan) -> StoreFuture<'_, TermScan>;
    /// The size of the stored vectors of a model; `None` if there are none.
    fn vector_size(&self, model: String) -> StoreFuture<'_, Option<usize>>;
    /// Chunks of all tenants after this number without a vector of the model, ordered by number.
    fn unembedded(&self, model: String, after: i64, limit: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>>;
    /// The next chunks to embed, like [`Self::unembedded`]. If several processes share the database, the chunks are claimed for this owner until
    /// it releases them or does not renew the claim for [`Self::claim_ttl`].
    fn claim_unembedded(&self, model: String, owner: Uuid, after: i64, limit: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>> {
        let _ = owner;
        self.unembedded(model, after, limit)
    }
    /// How long a claim is valid without renewal; `None` if only one process uses the database.
    fn claim_ttl(&self) -> Option<Duration> {
        None
    }
    /// Renews every claim of this owner.
    fn renew_claims(&self, owner: Uuid) -> StoreFuture<'_, ()> {
        let _ = owner;
        Box::pin(async { Ok(()) })
    }
    /// Releases every claim of this owner.
    fn release_claims(&self, owner: Uuid) -> StoreFuture<'_, ()> {
        let _ = owner;
        Box::pin(async { Ok(()) })
    }
    /// Stores vectors of one model, except for chunks that no longer exist. Returns how many were stored.
    fn put_vectors(&self, model: String, vectors: Vec<NewVector>) -> StoreFuture<'_, u64>;
}
