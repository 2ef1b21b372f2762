//! Removes the text of deleted documents from the files of the database.
//!
//! On SQLite a reader of the file, such as a backup, can keep old pages in the WAL. A deletion waits for it for a moment. Then a background
//! loop goes on trying, and the server says so in `/readyz`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use werkruf_store::StoreError;

use super::rows::Knowledge;

/// How long a deletion waits.
const WAIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// How often the background loop tries.
const RETRY: Duration = Duration::from_secs(1);

/// The deletions whose text is still in a file.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    is_pending: AtomicBool,
    given_up: Notify,
    attempts: Attempts,
}

/// The attempts to remove text, one at a time. All writes wait during an attempt, so deletions that wait share it.
#[derive(Debug, Default)]
struct Attempts {
    started: AtomicU64,
    /// The number of the last one that ended.
    ended: AtomicU64,
    /// Held during an attempt: whether the last one succeeded.
    succeeded: Mutex<bool>,
}

impl Attempts {
    /// Makes an attempt, or takes the result of another. A success counts if its attempt began after this call. A failure counts if its
    /// attempt ended after this call.
    async fn share(&self, attempt: impl Future<Output = Result<bool, StoreError>>) -> Result<bool, StoreError> {
        let (started, ended) = (self.started.load(Ordering::Acquire), self.ended.load(Ordering::Acquire));
        let mut succeeded = self.succeeded.lock().await;
        let last = self.ended.load(Ordering::Acquire);
        if last <= started && (last <= ended || *succeeded) {
            let number = self.started.fetch_add(1, Ordering::AcqRel) + 1;
            *succeeded = attempt.await?;
            self.ended.store(number, Ordering::Release);
        }
        Ok(*succeeded)
    }
}

impl Deletions {
    /// Whether a file still contains the text of a deleted document.
    pub(super) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    /// Removes the text of a deletion that was committed; leaves it to the background loop if a reader prevents that for too long.
    pub(super) async fn purge(&self, store: &dyn Knowledge) {
        if tokio::time::timeout(WAIT, self.retry(store, PAUSE)).await.is_err() {
            tracing::warn!("a reader of the database file keeps the text of a deleted document in the WAL");
            self.is_pending.store(true, Ordering::Release);
            self.given_up.notify_one();
        }
    }

    /// The background loop. The first round is for deletions of an earlier process. Never returns.
    pub(super) async fn run(&self, store: &dyn Knowledge) {
        loop {
            self.retry(store, RETRY).await;
            self.given_up.notified().await;
        }
    }

    async fn retry(&self, store: &dyn Knowledge, pause: Duration) {
        loop {
            match self.attempts.share(store.purge_deleted()).await {
                Ok(true) => return self.is_pending.store(false, Ordering::Release),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the text of deleted documents could not be removed from the database files"),
            }
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::Connection;
    use tokio::time::timeout;
    use werkruf_contract::Clock;
    use werkruf_store::SqliteStore;

    use super::*;
    use crate::{Document, KnowledgeBase, SCHEMA};

    /// Whether a file of the database contains this text.
    fn is_in_files(folder: &std::path::Path, text: &str) -> bool {
        std::fs::read_dir(folder).unwrap().any(|entry| {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    }

    #[tokio::test]
    async fn deletions_that_wait_share_an_attempt() {
        for (succeeds, made) in [(false, 1), (true, 2)] {
            let (attempts, count) = (Attempts::default(), AtomicU64::new(0));
            let attempt = || async {
                count.fetch_add(1, Ordering::AcqRel);
                tokio::task::yield_now().await;
                Ok(succeeds)
            };
            let results = futures_util::future::join_all((0..10).map(|_| attempts.share(attempt()))).await;
            assert!(results.into_iter().all(|result| result.unwrap() == succeeds));
            // A success counts only for what was deleted before the attempt began.
            assert_eq!(count.load(Ordering::Acquire), made);
            assert_eq!(attempts.share(attempt()).await.unwrap(), succeeds);
            assert_eq!(count.load(Ordering::Acquire), made + 1, "an attempt that is over is not shared");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[expect(clippy::disallowed_methods, reason = "stands for another program that reads the file")]
    async fn a_reader_delays_the_removal_and_the_server_says_so() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::system(0));
        let path = folder.path().join("w.db");
        let store = SqliteStore::open(path.clone(), &clock, &[SCHEMA]).unwrap();
        let base = Arc::new(KnowledgeBase::new(store, None, clock.clone()));
        let tenant = clock.new_id();
        let add = async |id: &str, text: &str| {
            let document = Document { id: Some(id.to_owned()), text: text.to_owned(), ..Document::default() };
            base.add(tenant, None, vec![document]).await.unwrap();
        };
        add("one", "xylophonquartett").await;
        assert!(is_in_files(folder.path(), "xylophonquartett"));
        assert!(base.delete(tenant, None, "one".to_owned()).await.unwrap());
        assert!(!is_in_files(folder.path(), "xylophonquartett") && !base.keeps_deleted_text());

        add("two", "harfenduett").await;
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; PRAGMA user_version;").unwrap();
        assert!(base.delete(tenant, None, "two".to_owned()).await.unwrap());
        assert!(base.keeps_deleted_text() && is_in_files(folder.path(), "harfenduett"));
        reader.execute_batch("COMMIT").unwrap();
        let gone = async {
            while base.keeps_deleted_text() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = base.purge_in_background() => unreachable!("it never returns"),
            () = async { timeout(Duration::from_secs(60), gone).await.unwrap() } => {}
        }
        assert!(!is_in_files(folder.path(), "harfenduett"));
    }
}
