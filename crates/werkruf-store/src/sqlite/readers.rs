//! The read pool: a few read-only connections, each used by one reader at a time.
//!
//! A look-up of a few indexed rows takes less time than a switch to another thread, so it runs on the caller's thread;
//! reads that grow with the data run on the blocking pool. In WAL mode every statement sees all commits
//! made before it began, so a read issued after a write resolved sees that write.

use std::sync::{Arc, Mutex, TryLockError};

use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};

use crate::StoreError;

/// Connections in the pool.
pub(super) const READERS: usize = 4;

pub(super) struct Readers {
    slots: Arc<Vec<Mutex<Connection>>>,
    /// One permit per connection, so the holder of a permit finds a free slot.
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self { slots: Arc::new(connections.into_iter().map(Mutex::new).collect()), permits }
    }

    /// How many connections there are, and how many of them nobody uses.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.slots.len(), self.permits.available_permits())
    }

    /// A look-up of a few rows by index.
    pub(super) async fn look_up<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send) -> Result<T, StoreError> {
        let _permit = self.permits.acquire().await.map_err(|_| closed())?;
        with_free(&self.slots, read)
    }

    /// A read that may take a while.
    pub(super) async fn list<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?;
        let slots = Arc::clone(&self.slots);
        let (reply, answer) = oneshot::channel();
        // One type of task for all reads: tokio's code for each type of task takes kilobytes.
        let work: Box<dyn FnOnce() + Send> = Box::new(move || {
            let result = with_free(&slots, read);
            drop(permit);
            // The caller may have dropped the future.
            let _ = reply.send(result);
        });
        tokio::task::spawn_blocking(work);
        answer.await.map_err(|_| StoreError::Broken("a read did not end".to_owned()))?
    }
}

fn with_free<T>(slots: &[Mutex<Connection>], read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
    for slot in slots {
        match slot.try_lock() {
            Ok(connection) => return read(&connection),
            // A reader that panicked left no transaction behind: reads open none.
            Err(TryLockError::Poisoned(poisoned)) => return read(&poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    Err(closed())
}

fn closed() -> StoreError {
    StoreError::Unavailable("no reader is free".to_owned())
}
