//! Brings indexes up to date: applies the changes of the log, builds an index from the rows, and maintains the parts of compounds.
//!
//! The work runs in tasks of its own, because a request that ends early must not stop it halfway.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{OwnedMutexGuard, RwLock};

use super::background::compute;
use super::collection_index::{
    CollectionIndex, Removed, SharedIndex, add_chunks, analyse, compare_parts, languages_with, put_vectors, remove_chunks,
};
use super::library::{Collection, Key, Shared};
use super::rights::{Grantee, ReadableCollection};
use super::rows::{ChangeMark, ChangePage, REMEMBERED_CHANGES};
use werkruf_store::StoreError;

/// The number of rows per read; bounds the memory used besides the index.
const PAGE: u32 = 2_000;
const VECTOR_PAGE: u32 = 500;
/// The number of chunks that are analysed before they are added.
const ANALYSED: usize = 250;
/// The index of so many chunks is built and maintained in a moment, so a write waits for it.
const SMALL: usize = 2_000;

impl Shared {
    /// Applies every change of a collection. The turn is over when the task ends.
    pub(super) async fn spawn_catch_up(self: &Arc<Self>, key: &Key, turn: Option<OwnedMutexGuard<()>>) -> Result<(), StoreError> {
        let (shared, key) = (Arc::clone(self), key.clone());
        in_a_task(async move {
            let _turn = turn;
            shared.catch_up(&key).await
        })
        .await
    }

    /// Builds the index of a collection from the rows.
    pub(super) async fn spawn_build(self: &Arc<Self>, key: &Key) -> Result<(), StoreError> {
        let (shared, key) = (Arc::clone(self), key.clone());
        in_a_task(async move { shared.build(&key).await }).await
    }

    /// Builds and maintains indexes, one after the other. Never returns.
    pub(super) async fn work_off_queue(self: &Arc<Self>) {
        let mut starting = true;
        loop {
            while let Some(key) = self.next_queued() {
                let collection = self.collection(&key);
                let needs_build = !collection.is_built() || collection.index.read().await.needs_rebuild();
                let done = if !needs_build {
                    self.maintain_parts(&collection).await
                } else if starting && self.bytes() >= self.max_bytes() {
                    // What does not fit into the memory is built when it is searched.
                    Ok(())
                } else {
                    self.build(&key).await
                };
                self.dequeue(&key);
                if let Err(error) = done {
                    tracing::warn!(%error, collection = key.1, "an index could not be built; the next search asks for it again");
                }
            }
            starting = false;
            self.queued.notified().await;
        }
    }

    async fn catch_up(&self, key: &Key) -> Result<(), StoreError> {
        let collection = self.collection(key);
        let applying = collection.applying.lock().await;
        if !collection.is_built() {
            return Ok(());
        }
        let applied = self.apply(key, &collection.index).await;
        collection.behind.store(applied.is_err(), Ordering::Release);
        let followed = applied?;
        drop(applying);
        let (needs_build, due, in_background, bytes) = {
            let index = collection.index.read().await;
            let in_background = index.index.len() > SMALL && self.background.load(Ordering::Relaxed);
            (!followed || index.needs_rebuild(), index.index.parts_are_due(), in_background, index.index.bytes())
        };
        self.evict(key, bytes);
        if !followed {
            // Until the index is built again, the stored terms are searched.
            collection.built.store(false, Ordering::Release);
        }
        match (needs_build, due) {
            (false, false) => Ok(()),
            _ if in_background => {
                self.enqueue(key);
                Ok(())
            }
            (true, _) => self.build(key).await,
            (false, true) => self.maintain_parts(&collection).await,
        }
    }

    /// Builds an index beside the present one, and replaces it.
    async fn build(&self, key: &Key) -> Result<(), StoreError> {
        let collection = self.collection(key);
        let _building = collection.building.lock().await;
        if collection.is_built() && !collection.index.read().await.needs_rebuild() {
            return Ok(());
        }
        let fresh = self.new_index(key).await?;
        self.apply(key, &fresh).await?;
        let built = Arc::clone(&fresh);
        blocking(move || built.blocking_write().index.update_compounds()).await?;
        let applying = collection.applying.lock().await;
        // What was committed in the meantime.
        if !self.apply(key, &fresh).await? {
            return Err(StoreError::Unavailable("a collection changed faster than its index was built".to_owned()));
        }
        let mut index = std::mem::take(&mut *fresh.write().await);
        let bytes = index.index.bytes();
        std::mem::swap(&mut *collection.index.write().await, &mut index);
        // Before the lock is released: a write that waits for it must find the index built, and apply its changes.
        collection.built.store(true, Ordering::Release);
        drop(applying);
        collection.was_built.notify_waiters();
        self.evict(key, bytes);
        // The old index is large, so it is freed outside the lock and not on a thread that serves requests.
        blocking(move || drop(index)).await
    }

    async fn new_index(&self, key: &Key) -> Result<SharedIndex, StoreError> {
        let languages = self.store.collection_languages(key.0, key.1.clone()).await?;
        Ok(Arc::new(RwLock::new(CollectionIndex::of(&languages))))
    }

    /// Applies the changes that an index does not contain. False if the log does not reach back far enough.
    async fn apply(&self, key: &Key, target: &SharedIndex) -> Result<bool, StoreError> {
        let (tenant_id, name) = key.clone();
        let found = self.store.newest_change(Grantee::everything(tenant_id), name.clone()).await?;
        let Some(ReadableCollection { change: newest, .. }) = found else { return Ok(true) };
        let (read, is_empty) = {
            let target = target.read().await;
            (target.read, target.index.is_empty())
        };
        if read == newest {
            return Ok(true);
        }
        let mut removed = Removed::new();
        // An index may have chunks and no change yet, if applying its first change failed halfway.
        if read > 0 || !is_empty {
            // The newest change is older after the database was restored or failed over to a replica that lost commits.
            if newest < read || newest - read > REMEMBERED_CHANGES {
                return Ok(false);
            }
            let chunks = self.store.removed_chunks(tenant_id, name, read, newest).await?;
            removed = target.read().await.by_document(chunks);
        }
        let removed = self.apply_chunks(key, target, read, newest, removed).await?;
        let removing = Arc::clone(target);
        blocking(move || remove_chunks(&removing, removed)).await?;
        self.apply_vectors(key, target, read, newest).await?;
        target.write().await.finish(newest);
        Ok(true)
    }

    /// Adds the new chunks; returns the removed ones whose documents have none.
    async fn apply_chunks(
        &self,
        key: &Key,
        target: &SharedIndex,
        read: i64,
        newest: i64,
        mut removed: Removed,
    ) -> Result<Removed, StoreError> {
        let mut mark = ChangeMark { change: read, chunk: i64::MAX };
        loop {
            let page = self.store.changed_chunks(key.0, key.1.clone(), ChangePage { after: mark, until: newest, limit: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(removed) };
            mark = last.mark;
            let is_last = page.len() < PAGE as usize;
            let languages = Arc::new(languages_with(target, &page).await);
            let (mut page, mut fits) = (page, true);
            while fits && !page.is_empty() {
                let rest = page.split_off(page.len().min(ANALYSED));
                let (part, languages, target) = (std::mem::replace(&mut page, rest), Arc::clone(&languages), Arc::clone(target));
                let analysed = compute(move || analyse(part, &languages)).await?;
                (fits, removed) = compute(move || (add_chunks(&target, analysed, &mut removed), removed)).await?;
            }
            if !fits {
                tracing::error!("a collection has more chunks than an index can hold; the newest cannot be found");
            }
            if is_last || !fits {
                return Ok(removed);
            }
        }
    }

    async fn apply_vectors(&self, key: &Key, target: &SharedIndex, read: i64, newest: i64) -> Result<(), StoreError> {
        let Some(model) = &self.model else { return Ok(()) };
        let mut mark = ChangeMark { change: read, chunk: i64::MAX };
        loop {
            let wanted = ChangePage { after: mark, until: newest, limit: VECTOR_PAGE };
            let page = self.store.changed_vectors(key.0, key.1.clone(), model.clone(), wanted).await?;
            let Some(last) = page.last() else { return Ok(()) };
            mark = last.mark;
            let (is_last, target) = (page.len() < VECTOR_PAGE as usize, Arc::clone(target));
            blocking(move || put_vectors(&target, &page)).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Compares the parts of compounds with the vocabulary, where enough chunks have changed.
    async fn maintain_parts(&self, collection: &Collection) -> Result<(), StoreError> {
        if !collection.index.read().await.index.parts_are_due() {
            return Ok(());
        }
        let mut next = Some(0);
        while let Some(from) = next {
            // Changes are applied between two slices.
            let _applying = collection.applying.lock().await;
            let target = Arc::clone(&collection.index);
            next = blocking(move || compare_parts(&target, from)).await?;
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "the task changes only memory, so nothing is lost if the process ends first")]
async fn in_a_task(work: impl Future<Output = Result<(), StoreError>> + Send + 'static) -> Result<(), StoreError> {
    tokio::spawn(work).await.map_err(|error| StoreError::Broken(format!("indexing did not end: {error}")))?
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Broken(format!("indexing did not end: {error}")))
}
