//! The indexes of all collections: made when first asked for, kept in step with their rows, let go when memory is short.
//!
//! An index knows the change of its collection up to which it has read. Before every search the newest change is looked up, and what
//! came after is read from the log; so an answer holds everything committed before the question, whoever wrote it. Memory is bounded
//! by letting go of the collections that were asked least recently; an index can always be made again from the rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::RwLock;
use werkruf_contract::Uuid;

use super::chunks::Chunk;
use super::index::{Index, IndexedChunk};
use super::rows::{ChangeMark, ChunkRow, Knowledge, REMEMBERED_CHANGES};
use super::search::{Hit, Question};
use super::spoken::CollectionLanguages;
use crate::StoreError;

/// Rows read at a time; what a reader may hold in memory beside the index.
const PAGE: u32 = 2_000;

type Key = (Uuid, String);

/// All indexes.
pub struct Library {
    store: Arc<dyn Knowledge>,
    shelves: Mutex<Shelves>,
    most_bytes: usize,
}

#[derive(Default)]
struct Shelves {
    by_key: HashMap<Key, Entry>,
    uses: u64,
}

struct Entry {
    shelf: Arc<RwLock<Shelf>>,
    used: u64,
    bytes: usize,
}

/// One collection.
#[derive(Default)]
struct Shelf {
    index: Index,
    /// The change up to which rows were read.
    read: i64,
    /// Whose vectors are in the index.
    model: Option<String>,
    spoken: CollectionLanguages,
}

/// A question to a collection.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    pub tenant_id: Uuid,
    pub collection: String,
    pub text: String,
    /// The model of the collection's vectors, and the question's own.
    pub vector: Option<(String, Vec<f32>)>,
    /// The languages the model knows.
    pub model_languages: Vec<String>,
    pub top: usize,
}

/// What was found, best first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchResult {
    pub hits: Vec<(ChunkRow, Hit)>,
    /// The vectors' weight; 0 where none were used.
    pub alpha: f32,
}

impl SearchResult {
    /// Whether the model of the vectors knows the collection's languages, as far as its weight tells.
    pub fn knows_language(&self) -> bool {
        self.alpha > 0.5
    }
}

impl Library {
    /// A library over these rows that takes about this much memory at most, one collection always.
    pub fn new(store: Arc<dyn Knowledge>, most_bytes: usize) -> Self {
        Self { store, shelves: Mutex::default(), most_bytes }
    }

    /// The rows.
    pub fn store(&self) -> &Arc<dyn Knowledge> {
        &self.store
    }

    /// Searches one collection; one that does not exist has nothing.
    pub async fn search(&self, asked: SearchQuery) -> Result<SearchResult, StoreError> {
        let tenant_id = asked.tenant_id;
        let Some(newest) = self.store.newest_change(tenant_id, asked.collection.clone()).await? else { return Ok(SearchResult::default()) };
        let key = (tenant_id, asked.collection.clone());
        let shelf = self.shelf(&key);
        let model = asked.vector.as_ref().map(|(model, _)| model.clone());
        self.bring_up(&key, &shelf, newest, model.as_deref()).await?;
        let guard = shelf.read_owned().await;
        let found = tokio::task::spawn_blocking(move || {
            let fits = guard.model == model;
            let vector = asked.vector.as_ref().filter(|_| fits).map(|(_, vector)| vector.as_slice());
            let alpha = guard.spoken.alpha(&asked.model_languages);
            let question = Question { text: &asked.text, languages: guard.spoken.languages(), vector, alpha };
            let used = if vector.is_some() && guard.index.embedded() > 0 { alpha } else { 0.0 };
            (guard.index.search(question, asked.top), used)
        });
        let (hits, alpha) = found.await.map_err(|error| StoreError::Broken(format!("a search did not end: {error}")))?;
        let rows = self.store.chunks(tenant_id, hits.iter().map(|hit| hit.number).collect()).await?;
        // A chunk that went away meanwhile is not shown.
        let mut rows: HashMap<i64, ChunkRow> = rows.into_iter().map(|row| (row.number, row)).collect();
        let hits = hits.into_iter().filter_map(|hit| Some((rows.remove(&hit.number)?, hit))).collect();
        Ok(SearchResult { hits, alpha })
    }

    /// About how much memory all indexes take.
    pub fn bytes(&self) -> usize {
        self.lock().by_key.values().map(|entry| entry.bytes).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self, key: &Key) -> Arc<RwLock<Shelf>> {
        let mut shelves = self.lock();
        shelves.uses += 1;
        let used = shelves.uses;
        let entry = shelves.by_key.entry(key.clone()).or_insert_with(|| Entry { shelf: Arc::default(), used, bytes: 0 });
        entry.used = used;
        Arc::clone(&entry.shelf)
    }

    /// Reads what the index does not know yet.
    async fn bring_up(&self, key: &Key, shelf: &Arc<RwLock<Shelf>>, newest: i64, model: Option<&str>) -> Result<(), StoreError> {
        let is_current = |shelf: &Shelf| shelf.read >= newest && (model.is_none() || shelf.model.as_deref() == model);
        if is_current(&*shelf.read().await) {
            return Ok(());
        }
        let mut guard = Arc::clone(shelf).write_owned().await;
        if is_current(&guard) {
            return Ok(());
        }
        let (mut read, fresh) = (guard.read, guard.read < newest - REMEMBERED_CHANGES || guard.index.is_hollow());
        if fresh {
            read = 0;
            *guard = Shelf::default();
        }
        let (tenant_id, collection) = key.clone();
        let row = self.store.collection(tenant_id, collection.clone(), None).await?.unwrap_or_default();
        guard.spoken = CollectionLanguages::of(&row.languages);
        for removed in self.store.removed_chunks(tenant_id, collection.clone(), read).await? {
            guard.index.remove(removed);
        }
        let guard = self.read_chunks(key, guard, read, newest).await?;
        let mut guard = self.read_vectors(key, guard, read, newest, model).await?;
        guard.read = newest;
        let guard = settled(guard).await?;
        let bytes = guard.index.bytes();
        drop(guard);
        self.make_room(key, bytes);
        Ok(())
    }

    async fn read_chunks(&self, key: &Key, mut guard: Guard, read: i64, newest: i64) -> Result<Guard, StoreError> {
        let mut mark = ChangeMark { change: read, chunk: i64::MAX };
        loop {
            let page = self.store.changed_chunks(key.0, key.1.clone(), mark, newest, PAGE).await?;
            let Some(last) = page.last() else { return Ok(guard) };
            mark = last.mark;
            let full = page.len() >= PAGE as usize;
            guard = apart(guard, move |shelf| {
                for chunk in page {
                    let language = shelf.spoken.of_chunk(chunk.language.as_deref());
                    let text = Chunk::indexed(&chunk.title, &chunk.heading, &chunk.content);
                    let indexed = IndexedChunk {
                        number: chunk.mark.chunk,
                        document_id: chunk.document_id,
                        ordinal: chunk.position,
                        language: Some(language),
                        text,
                    };
                    if !shelf.index.add(&indexed) {
                        tracing::error!("a collection has more chunks than an index can hold; the newest are not found");
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
            guard = apart(guard, move |shelf| {
                for changed in page {
                    shelf.index.put_vector(changed.mark.chunk, &changed.vector);
                }
            })
            .await?;
            if !full {
                return Ok(guard);
            }
        }
    }

    /// Lets go of whatever was asked least recently until the rest fits.
    fn make_room(&self, key: &Key, bytes: usize) {
        let mut shelves = self.lock();
        if let Some(entry) = shelves.by_key.get_mut(key) {
            entry.bytes = bytes;
        }
        let mut all: usize = shelves.by_key.values().map(|entry| entry.bytes).sum();
        while all > self.most_bytes {
            let oldest = shelves.by_key.iter().filter(|(other, _)| *other != key).min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(other, _)| other.clone()) else { break };
            if let Some(gone) = shelves.by_key.remove(&oldest) {
                all -= gone.bytes;
                tracing::info!(collection = oldest.1, bytes = gone.bytes, "the index of a collection was let go to make room");
            }
        }
    }
}

type Guard = tokio::sync::OwnedRwLockWriteGuard<Shelf>;

async fn settled(guard: Guard) -> Result<Guard, StoreError> {
    apart(guard, |shelf| shelf.index.settle()).await
}

/// Work on an index takes a while: not on a thread that serves requests.
async fn apart(mut guard: Guard, work: impl FnOnce(&mut Shelf) + Send + 'static) -> Result<Guard, StoreError> {
    let working = tokio::task::spawn_blocking(move || {
        work(&mut guard);
        guard
    });
    working.await.map_err(|error| StoreError::Broken(format!("indexing did not end: {error}")))
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
