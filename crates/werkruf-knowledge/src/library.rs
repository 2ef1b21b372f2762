//! A cache of the indexes of all collections: built on first use, updated from the rows, evicted when memory is short.
//!
//! An index stores the last change of its collection that it has read. Every search first looks up the newest change and reads
//! the missing ones from the log, so a result includes everything that any process committed before the query. To bound memory, the least
//! recently used indexes are evicted; an index can always be rebuilt from the rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::RwLock;
use werkruf_contract::Uuid;

use super::chunks::Chunk;
use super::collection_languages::CollectionLanguages;
use super::index::{Index, IndexedChunk};
use super::rows::{ChangeMark, ChunkRow, Knowledge, REMEMBERED_CHANGES};
use super::search::{Hit, IndexQuery};
use werkruf_store::StoreError;

/// The number of rows per read; bounds the memory used besides the index.
const PAGE: u32 = 2_000;

type Key = (Uuid, String);

/// The indexes of all collections.
pub struct Library {
    store: Arc<dyn Knowledge>,
    entries: Mutex<Entries>,
    max_bytes: usize,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    uses: u64,
}

struct Entry {
    cached: Arc<RwLock<CollectionIndex>>,
    used: u64,
    bytes: usize,
}

/// The index of one collection.
#[derive(Default)]
struct CollectionIndex {
    index: Index,
    /// The last change that was read.
    read: i64,
    /// The model of the vectors in the index.
    model: Option<String>,
    languages: CollectionLanguages,
}

/// A search query for one collection.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    pub tenant_id: Uuid,
    pub collection: String,
    pub text: String,
    /// The model of the collection's vectors, and the vector of the query.
    pub vector: Option<(String, Vec<f32>)>,
    /// The languages that the model supports.
    pub model_languages: Vec<String>,
    pub top: usize,
}

/// The search result, best first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchResult {
    pub hits: Vec<(ChunkRow, Hit)>,
    /// The weight of the vectors; 0 if none were used.
    pub alpha: f32,
}

impl SearchResult {
    /// Whether the model of the vectors supports the collection's languages, derived from the weight.
    pub fn knows_language(&self) -> bool {
        self.alpha > 0.5
    }
}

impl Library {
    /// A cache over these rows with about this memory limit; one collection is always kept.
    pub fn new(store: Arc<dyn Knowledge>, max_bytes: usize) -> Self {
        Self { store, entries: Mutex::default(), max_bytes }
    }

    /// The rows.
    pub fn store(&self) -> &Arc<dyn Knowledge> {
        &self.store
    }

    /// Searches one collection; a collection that does not exist has no hits.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchResult, StoreError> {
        let tenant_id = query.tenant_id;
        let Some(newest) = self.store.newest_change(tenant_id, query.collection.clone()).await? else { return Ok(SearchResult::default()) };
        let key = (tenant_id, query.collection.clone());
        let collection_index = self.cached_index(&key);
        let model = query.vector.as_ref().map(|(model, _)| model.clone());
        self.catch_up(&key, &collection_index, newest, model.as_deref()).await?;
        let guard = collection_index.read_owned().await;
        let searching = tokio::task::spawn_blocking(move || {
            let fits = guard.model == model;
            let vector = query.vector.as_ref().filter(|_| fits).map(|(_, vector)| vector.as_slice());
            let alpha = guard.languages.alpha(&query.model_languages);
            let index_query = IndexQuery { text: &query.text, languages: guard.languages.languages(), vector, alpha };
            let used = if vector.is_some() && guard.index.embedded() > 0 { alpha } else { 0.0 };
            (guard.index.search(index_query, query.top), used)
        });
        let (hits, alpha) = searching.await.map_err(|error| StoreError::Broken(format!("a search did not end: {error}")))?;
        let rows = self.store.chunks(tenant_id, hits.iter().map(|hit| hit.number).collect()).await?;
        // A chunk that was deleted in the meantime is left out.
        let mut rows: HashMap<i64, ChunkRow> = rows.into_iter().map(|row| (row.number, row)).collect();
        let hits = hits.into_iter().filter_map(|hit| Some((rows.remove(&hit.number)?, hit))).collect();
        Ok(SearchResult { hits, alpha })
    }

    /// An estimate of the memory used by all indexes.
    pub fn bytes(&self) -> usize {
        self.lock().by_key.values().map(|entry| entry.bytes).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cached_index(&self, key: &Key) -> Arc<RwLock<CollectionIndex>> {
        let mut entries = self.lock();
        entries.uses += 1;
        let used = entries.uses;
        let entry = entries.by_key.entry(key.clone()).or_insert_with(|| Entry { cached: Arc::default(), used, bytes: 0 });
        entry.used = used;
        Arc::clone(&entry.cached)
    }

    /// Reads the changes that the index does not contain yet.
    async fn catch_up(
        &self,
        key: &Key,
        collection_index: &Arc<RwLock<CollectionIndex>>,
        newest: i64,
        model: Option<&str>,
    ) -> Result<(), StoreError> {
        let is_current = |collection_index: &CollectionIndex| {
            collection_index.read >= newest && (model.is_none() || collection_index.model.as_deref() == model)
        };
        if is_current(&*collection_index.read().await) {
            return Ok(());
        }
        let mut guard = Arc::clone(collection_index).write_owned().await;
        if is_current(&guard) {
            return Ok(());
        }
        let (mut read, rebuild) = (guard.read, guard.read < newest - REMEMBERED_CHANGES || guard.index.needs_rebuild());
        if rebuild {
            read = 0;
            *guard = CollectionIndex::default();
        }
        let (tenant_id, collection) = key.clone();
        let row = self.store.collection(tenant_id, collection.clone(), None).await?.unwrap_or_default();
        guard.languages = CollectionLanguages::of(&row.languages);
        for removed in self.store.removed_chunks(tenant_id, collection.clone(), read).await? {
            guard.index.remove(removed);
        }
        let guard = self.read_chunks(key, guard, read, newest).await?;
        let mut guard = self.read_vectors(key, guard, read, newest, model).await?;
        guard.read = newest;
        let guard = update_compounds(guard).await?;
        let bytes = guard.index.bytes();
        drop(guard);
        self.evict(key, bytes);
        Ok(())
    }

    async fn read_chunks(&self, key: &Key, mut guard: Guard, read: i64, newest: i64) -> Result<Guard, StoreError> {
        let mut mark = ChangeMark { change: read, chunk: i64::MAX };
        loop {
            let page = self.store.changed_chunks(key.0, key.1.clone(), mark, newest, PAGE).await?;
            let Some(last) = page.last() else { return Ok(guard) };
            mark = last.mark;
            let full = page.len() >= PAGE as usize;
            guard = run_blocking(guard, move |collection_index| {
                for chunk in page {
                    let language = collection_index.languages.of_chunk(chunk.language.as_deref());
                    let text = Chunk::indexed(&chunk.title, &chunk.heading, &chunk.content);
                    let indexed = IndexedChunk {
                        number: chunk.mark.chunk,
                        document_id: chunk.document_id,
                        ordinal: chunk.position,
                        language: Some(language),
                        text,
                    };
                    if !collection_index.index.add(&indexed) {
                        tracing::error!("a collection has more chunks than an index can hold; the newest cannot be found");
                        break;
                    }
                }
            })
            .await?;
            if !full {
                return Ok(guard);
            }
        }
    }

    async fn read_vectors(&self, key: &Key, mut guard: Guard, read: i64, newest: i64, model: Option<&str>) -> Result<Guard, StoreError> {
        let Some(model) = model.map(str::to_owned).or_else(|| guard.model.clone()) else { return Ok(guard) };
        let mut mark = ChangeMark { change: read, chunk: i64::MAX };
        if guard.model.as_deref() != Some(&*model) {
            guard.index.drop_vectors();
            guard.model = Some(model.clone());
            mark.change = 0;
        }
        loop {
            let page = self.store.changed_vectors(key.0, key.1.clone(), model.clone(), mark, newest, PAGE / 4).await?;
            let Some(last) = page.last() else { return Ok(guard) };
            mark = last.mark;
            let full = page.len() >= PAGE as usize / 4;
            guard = run_blocking(guard, move |collection_index| {
                for changed in page {
                    collection_index.index.put_vector(changed.mark.chunk, &changed.vector);
                }
            })
            .await?;
            if !full {
                return Ok(guard);
            }
        }
    }

    /// Evicts the least recently used indexes until the memory limit is met.
    fn evict(&self, key: &Key, bytes: usize) {
        let mut entries = self.lock();
        if let Some(entry) = entries.by_key.get_mut(key) {
            entry.bytes = bytes;
        }
        let mut all: usize = entries.by_key.values().map(|entry| entry.bytes).sum();
        while all > self.max_bytes {
            let oldest = entries.by_key.iter().filter(|(other, _)| *other != key).min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(other, _)| other.clone()) else { break };
            if let Some(removed) = entries.by_key.remove(&oldest) {
                all -= removed.bytes;
                tracing::info!(collection = oldest.1, bytes = removed.bytes, "the index of a collection was evicted to free memory");
            }
        }
    }
}

type Guard = tokio::sync::OwnedRwLockWriteGuard<CollectionIndex>;

async fn update_compounds(guard: Guard) -> Result<Guard, StoreError> {
    run_blocking(guard, |collection_index| collection_index.index.update_compounds()).await
}

/// Runs work on an index on a blocking thread, because it takes long.
async fn run_blocking(mut guard: Guard, work: impl FnOnce(&mut CollectionIndex) + Send + 'static) -> Result<Guard, StoreError> {
    let task = tokio::task::spawn_blocking(move || {
        work(&mut guard);
        guard
    });
    task.await.map_err(|error| StoreError::Broken(format!("indexing did not end: {error}")))
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
