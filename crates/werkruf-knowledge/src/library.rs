//! The indexes of all collections. They follow the rows change by change and are evicted when memory is short.
//!
//! A write of this process is answered after its changes are in the index, so the next search finds them without waiting. A search waits
//! only for changes of other processes, and only for a moment. It never builds an index where [`Library::run`] does that in the background:
//! until it is built, the stored terms of the rows are searched. Indexes contain only data from rows, so a killed process has nothing to
//! repair.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use werkruf_contract::{Trust, Uuid};

use super::collection_index::SharedIndex;
use super::pace::Pace;
use super::rights::Grantee;
use super::rows::{ChunkRow, Knowledge, NewVector, UnembeddedChunk};
use super::search::{Hit, IndexQuery};
use super::stored_terms::TermScan;
use werkruf_store::StoreError;

/// How long a search waits for changes of other processes.
const REMOTE_WAIT: Duration = Duration::from_millis(500);
/// How long a search waits for an index that is being built, because a small one is built in a moment.
const BUILD_WAIT: Duration = Duration::from_millis(20);

/// The most scans of stored terms at once.
const MAX_SCANS: usize = 2;
/// How often a search is repeated because its hits were replaced meanwhile.
const MAX_ATTEMPTS: u32 = 3;

pub(super) type Key = (Uuid, String);

/// The indexes of all collections.
pub struct Library {
    pub(super) shared: Arc<Shared>,
    /// Holds writes back while searches come in.
    pub(super) pace: Pace,
}

pub(super) struct Shared {
    pub(super) store: Arc<dyn Knowledge>,
    /// The model whose vectors are indexed.
    pub(super) model: Option<String>,
    entries: Mutex<Entries>,
    max_bytes: usize,
    /// Whether indexes are built in the background.
    pub(super) background: AtomicBool,
    /// The collections whose index must be built or maintained.
    queue: Mutex<BTreeSet<Key>>,
    pub(super) queued: Notify,
    /// Bounds the scans of stored terms. Each reads all terms of its collection, and takes a connection that other reads need.
    scans: Semaphore,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    uses: u64,
}

struct Entry {
    collection: Arc<Collection>,
    used: u64,
    bytes: usize,
}

/// A collection and its index.
#[derive(Default)]
pub(super) struct Collection {
    pub(super) index: SharedIndex,
    /// Whether the index contains everything up to its last change.
    pub(super) built: AtomicBool,
    pub(super) was_built: Notify,
    /// Held while changes are applied, so that they are applied by one task at a time.
    pub(super) applying: tokio::sync::Mutex<()>,
    /// Held while the index is built.
    pub(super) building: tokio::sync::Mutex<()>,
    /// Writes of this process that are not yet in the index.
    writes: AtomicUsize,
    /// Whether applying changes failed, so that the index lacks some of them.
    pub(super) behind: AtomicBool,
    /// Held while a task applies the changes of other processes for the searches that wait for them.
    following: Arc<tokio::sync::Mutex<()>>,
}

impl Collection {
    pub(super) fn is_built(&self) -> bool {
        self.built.load(Ordering::Acquire)
    }

    async fn wait_until_built(&self) {
        let built = self.was_built.notified();
        tokio::pin!(built);
        built.as_mut().enable();
        if !self.is_built() {
            built.await;
        }
    }
}

/// A search query for one collection.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// Who searches.
    pub grantee: Grantee,
    pub collection: String,
    pub text: String,
    /// The vector of the query, from the library's model.
    pub vector: Option<Vec<f32>>,
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
    /// Whether the stored terms were searched, because the index was being built.
    pub building: bool,
    /// Whether the query's vector has another size than the collection's vectors.
    pub wrong_size: bool,
    /// Whether there is such a collection that the grantee may read.
    pub exists: bool,
    pub trust: Trust,
}

impl SearchResult {
    /// Whether the model of the vectors supports the collection's languages, derived from the weight.
    pub fn knows_language(&self) -> bool {
        self.alpha > 0.5
    }
}

impl Library {
    /// The indexes over these rows, with the vectors of this model. Together they use about this memory at most; one is always kept.
    pub fn new(store: Arc<dyn Knowledge>, model: Option<String>, max_bytes: usize) -> Self {
        let shared = Shared {
            store,
            model,
            entries: Mutex::default(),
            max_bytes,
            background: AtomicBool::new(false),
            queue: Mutex::default(),
            queued: Notify::new(),
            scans: Semaphore::new(MAX_SCANS),
        };
        Self { shared: Arc::new(shared), pace: Pace::default() }
    }

    /// The rows.
    pub fn store(&self) -> &Arc<dyn Knowledge> {
        &self.shared.store
    }

    /// Searches one collection; a collection that does not exist or that the grantee may not read has no hits, and its index is not opened.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchResult, StoreError> {
        let Some(found) = self.shared.store.newest_change(query.grantee.clone(), query.collection.clone()).await? else {
            return Ok(SearchResult::default());
        };
        let result = self.search_changes(query, found.change).await?;
        Ok(SearchResult { exists: true, trust: found.trust, ..result })
    }

    /// Searches one collection whose newest change is this one.
    async fn search_changes(&self, query: SearchQuery, newest: i64) -> Result<SearchResult, StoreError> {
        let shared = &self.shared;
        let key = (query.grantee.tenant_id(), query.collection.clone());
        let collection = shared.collection(&key);
        if !collection.is_built() {
            if !shared.background.load(Ordering::Relaxed) {
                shared.spawn_build(&key).await?;
            } else {
                shared.enqueue(&key);
                if tokio::time::timeout(BUILD_WAIT, collection.wait_until_built()).await.is_err() {
                    return shared.search_terms(query).await;
                }
            }
        }
        // While this process writes, each write applies all changes. A failed one leaves them to the next search.
        let is_followed = collection.writes.load(Ordering::Acquire) > 0 && !collection.behind.load(Ordering::Acquire);
        if collection.index.read().await.read != newest && !is_followed {
            shared.follow(&key, &collection).await?;
        }
        let query = Arc::new(query);
        let (mut result, mut is_whole) = shared.search_index(&collection, &query).await?;
        let mut attempts = 1;
        // A chunk was removed or replaced a moment ago. Where documents change all the time, the last result may lack one of them.
        while !is_whole && attempts < MAX_ATTEMPTS {
            shared.follow(&key, &collection).await?;
            (result, is_whole) = shared.search_index(&collection, &query).await?;
            attempts += 1;
        }
        Ok(result)
    }

    /// Runs a write to a collection of this process. When it returns, searches of this process see it.
    pub async fn write<T>(
        &self,
        tenant_id: Uuid,
        collection: &str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let key = (tenant_id, collection.to_owned());
        let cached = self.shared.collection(&key);
        let exists = async || self.shared.store.newest_change(Grantee::everything(tenant_id), key.1.clone()).await.map(|row| row.is_some());
        let is_new = !cached.is_built() && !exists().await?;
        if is_new {
            // The empty index of a collection that does not exist yet is complete.
            cached.built.store(true, Ordering::Release);
        }
        let _counted = Counted::new(&cached);
        let done = work.await;
        // The work has been done, whether or not this can be read.
        if is_new && !exists().await.unwrap_or(true) {
            self.shared.forget(&key, &cached);
        }
        let done = done?;
        if let Err(error) = self.shared.spawn_catch_up(&key, None).await {
            tracing::warn!(%error, tenant_id = %key.0, collection = key.1, "an index does not contain a change yet; the next search reads it");
        }
        Ok(done)
    }

    /// Stores vectors of chunks, like [`Knowledge::put_vectors`], and updates the indexes of their collections.
    pub async fn put_vectors(&self, model: String, batch: &[UnembeddedChunk], vectors: Vec<NewVector>) -> Result<u64, StoreError> {
        let keys: BTreeSet<Key> = batch.iter().map(|chunk| (chunk.tenant_id, chunk.collection.clone())).collect();
        let collections: Vec<Arc<Collection>> = keys.iter().map(|key| self.shared.collection(key)).collect();
        let _counted: Vec<Counted<'_>> = collections.iter().map(|collection| Counted::new(collection)).collect();
        let stored = self.shared.store.put_vectors(model, vectors).await?;
        for key in &keys {
            if let Err(error) = self.shared.spawn_catch_up(key, None).await {
                tracing::warn!(%error, tenant_id = %key.0, collection = key.1, "an index does not contain new vectors yet; the next search reads them");
            }
        }
        Ok(stored)
    }

    /// Builds the index of every collection, then maintains the indexes. Never returns; the caller drops the future to stop it.
    pub async fn run(&self) {
        self.shared.background.store(true, Ordering::Relaxed);
        match self.shared.store.all_collections().await {
            Ok(all) => all.iter().for_each(|key| self.shared.enqueue(key)),
            Err(error) => tracing::warn!(%error, "the collections could not be listed; each index is built after its first search"),
        }
        self.shared.work_off_queue().await;
    }

    /// The number of collections whose index is being built, or waits for it.
    pub fn building(&self) -> usize {
        let queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.iter().filter(|key| !self.shared.is_built(key)).count()
    }

    /// An estimate of the memory used by all indexes.
    pub fn bytes(&self) -> usize {
        self.shared.bytes()
    }
}

/// Counts a write of this process until it is dropped.
struct Counted<'a>(&'a Collection);

impl<'a> Counted<'a> {
    fn new(collection: &'a Collection) -> Self {
        collection.writes.fetch_add(1, Ordering::AcqRel);
        Self(collection)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.writes.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bytes(&self) -> usize {
        self.lock().by_key.values().map(|entry| entry.bytes).sum()
    }

    pub(super) const fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    fn is_built(&self, key: &Key) -> bool {
        self.lock().by_key.get(key).is_some_and(|entry| entry.collection.is_built())
    }

    pub(super) fn collection(&self, key: &Key) -> Arc<Collection> {
        let mut entries = self.lock();
        entries.uses += 1;
        let used = entries.uses;
        let entry = entries.by_key.entry(key.clone()).or_insert_with(|| Entry { collection: Arc::default(), used, bytes: 0 });
        entry.used = used;
        Arc::clone(&entry.collection)
    }

    /// Drops the entry of a collection that does not exist, unless another write is about to make it.
    fn forget(&self, key: &Key, collection: &Arc<Collection>) {
        let mut entries = self.lock();
        let is_same = entries.by_key.get(key).is_some_and(|entry| Arc::ptr_eq(&entry.collection, collection));
        if is_same && collection.writes.load(Ordering::Acquire) == 1 {
            entries.by_key.remove(key);
        }
    }

    pub(super) fn enqueue(&self, key: &Key) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        self.queued.notify_one();
    }

    /// The next collection of the queue. It stays in the queue until [`Self::dequeue`].
    pub(super) fn next_queued(&self) -> Option<Key> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }

    pub(super) fn dequeue(&self, key: &Key) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Waits for changes that other processes made before this one. Changes of this process are in the index before they are answered. A
    /// search that stops waiting leaves its task behind; the next ones wait for this task, so that a collection never has two.
    async fn follow(self: &Arc<Self>, key: &Key, collection: &Collection) -> Result<(), StoreError> {
        let catching_up = async {
            let turn = Arc::clone(&collection.following).lock_owned().await;
            self.spawn_catch_up(key, Some(turn)).await
        };
        if !self.background.load(Ordering::Relaxed) {
            return catching_up.await;
        }
        tokio::time::timeout(REMOTE_WAIT, catching_up).await.unwrap_or(Ok(()))
    }

    /// Searches an index as it is. Also returns whether every hit still has its row.
    async fn search_index(&self, collection: &Collection, query: &Arc<SearchQuery>) -> Result<(SearchResult, bool), StoreError> {
        let guard = Arc::clone(&collection.index).read_owned().await;
        let (tenant_id, query) = (query.grantee.tenant_id(), Arc::clone(query));
        let searching = tokio::task::spawn_blocking(move || {
            let size = guard.index.vectors.dimensions();
            let wrong_size = query.vector.as_ref().is_some_and(|vector| size.is_some_and(|size| vector.len() != size));
            let vector = query.vector.as_deref().filter(|_| size.is_some() && !wrong_size);
            let alpha = guard.languages.alpha(&query.model_languages);
            let index_query = IndexQuery { text: &query.text, languages: guard.languages.languages(), vector, alpha };
            let alpha = if vector.is_some() { alpha } else { 0.0 };
            (guard.index.search(index_query, query.top), alpha, wrong_size)
        });
        let (hits, alpha, wrong_size) = searching.await.map_err(|error| StoreError::Broken(format!("a search did not end: {error}")))?;
        let found = hits.len();
        let hits = self.with_rows(tenant_id, hits).await?;
        let is_whole = hits.len() == found;
        Ok((SearchResult { hits, alpha, wrong_size, ..SearchResult::default() }, is_whole))
    }

    /// Searches the stored terms.
    async fn search_terms(&self, query: SearchQuery) -> Result<SearchResult, StoreError> {
        let _scan = self.scans.acquire().await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let tenant_id = query.grantee.tenant_id();
        let scan = self.store.scan_terms(tenant_id, query.collection, TermScan::of(&query.text)).await?;
        let hits = self.with_rows(tenant_id, scan.hits(query.top)).await?;
        Ok(SearchResult { hits, building: true, ..SearchResult::default() })
    }

    /// The hits with their rows. A chunk that was deleted in the meantime is left out.
    async fn with_rows(&self, tenant_id: Uuid, hits: Vec<Hit>) -> Result<Vec<(ChunkRow, Hit)>, StoreError> {
        let rows = self.store.chunks(tenant_id, hits.iter().map(|hit| hit.number).collect()).await?;
        let mut rows: HashMap<i64, ChunkRow> = rows.into_iter().map(|row| (row.number, row)).collect();
        Ok(hits.into_iter().filter_map(|hit| Some((rows.remove(&hit.number)?, hit))).collect())
    }

    /// Notes the memory of an index, and evicts the least recently used others until the memory limit is met.
    pub(super) fn evict(&self, key: &Key, bytes: usize) {
        let mut entries = self.lock();
        if let Some(entry) = entries.by_key.get_mut(key) {
            entry.bytes = bytes;
        }
        let mut all: usize = entries.by_key.values().map(|entry| entry.bytes).sum();
        while all > self.max_bytes {
            let others = entries.by_key.iter().filter(|(other, entry)| *other != key && entry.bytes > 0);
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(other, _)| other.clone()) else { break };
            if let Some(removed) = entries.by_key.remove(&oldest) {
                all -= removed.bytes;
                tracing::info!(collection = oldest.1, bytes = removed.bytes, "the index of a collection was evicted to free memory");
            }
        }
    }
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
