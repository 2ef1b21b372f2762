//! The writer: groups of jobs, and failures of single jobs and of whole groups.

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::Writer;
use crate::StoreError;

#[expect(clippy::disallowed_methods, reason = "a database in memory is enough to watch the writer")]
fn writer() -> Arc<Writer> {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY)").unwrap();
    Arc::new(Writer::start(connection).unwrap())
}

fn insert(c: &Connection, n: i64) -> Result<(), StoreError> {
    c.prepare_cached("INSERT INTO t VALUES (?1)")?.execute([n])?;
    Ok(())
}

async fn rows(writer: &Writer) -> Vec<i64> {
    let read = |c: &Connection| {
        let mut statement = c.prepare_cached("SELECT n FROM t ORDER BY n")?;
        Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?)
    };
    writer.submit(read).await.unwrap()
}

/// Blocks the writer inside a job until the sender is used, so that later jobs queue up.
async fn hold(writer: &Arc<Writer>) -> (oneshot::Sender<()>, tokio::task::JoinHandle<Result<(), StoreError>>) {
    let (go, wait) = oneshot::channel::<()>();
    let (inside, entered) = oneshot::channel();
    let writer = Arc::clone(writer);
    let held = tokio::task::spawn_blocking(move || {
        tokio::runtime::Handle::current().block_on(writer.submit(move |_| {
            let _ = inside.send(());
            wait.blocking_recv().map_err(|_| StoreError::Busy)
        }))
    });
    entered.await.unwrap();
    (go, held)
}

#[tokio::test]
async fn a_failing_and_a_panicking_job_are_rolled_back_alone() {
    let writer = writer();
    let (go, held) = hold(&writer).await;
    let good = writer.submit(|c| insert(c, 1));
    let failing = writer.submit(|c| {
        insert(c, 2)?;
        Err::<(), _>(StoreError::Busy)
    });
    let panicking = writer.submit(|c| {
        insert(c, 3)?;
        // The same number twice: the first row is written, then the second insert panics.
        insert(c, 3).unwrap();
        Ok(())
    });
    let last = writer.submit(|c| insert(c, 4));
    let release = async { go.send(()) };
    let (good, failing, panicking, last, _) = tokio::join!(biased; good, failing, panicking, last, release);
    held.await.unwrap().unwrap();
    good.unwrap();
    last.unwrap();
    assert!(matches!(failing, Err(StoreError::Busy)));
    assert!(matches!(panicking, Err(StoreError::Broken(_))));
    assert_eq!(rows(&writer).await, [1, 4]);
    assert_eq!(writer.counts().groups, 3, "one blocked, one shared, one read");
    assert_eq!(writer.counts().row_writes, 4, "rows that were rolled back count too");
}

#[tokio::test]
async fn repeatable_jobs_run_again_when_one_of_them_failed() {
    let writer = writer();
    let (go, held) = hold(&writer).await;
    let good = writer.submit_repeatable(|c| insert(c, 1));
    let failing = writer.submit_repeatable(|c| {
        insert(c, 2)?;
        Err::<(), _>(StoreError::Fenced)
    });
    let panicking = writer.submit_repeatable(|c| {
        insert(c, 3)?;
        insert(c, 3).unwrap();
        Ok(())
    });
    let last = writer.submit_repeatable(|c| insert(c, 4));
    let release = async { go.send(()) };
    let (good, failing, panicking, last, _) = tokio::join!(biased; good, failing, panicking, last, release);
    held.await.unwrap().unwrap();
    good.unwrap();
    last.unwrap();
    assert!(matches!(failing, Err(StoreError::Fenced)));
    assert!(matches!(panicking, Err(StoreError::Broken(_))));
    assert_eq!(rows(&writer).await, [1, 4], "each successful job is stored once");
    assert_eq!((writer.counts().commits, writer.counts().groups), (4, 3), "one blocked, two of the group, one read");
}

#[tokio::test]
async fn repeatable_jobs_run_once_when_none_fails() {
    let writer = writer();
    let (go, held) = hold(&writer).await;
    let ran = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let job = |n: i64| {
        let ran = Arc::clone(&ran);
        writer.submit_repeatable(move |c| {
            ran.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            insert(c, n)
        })
    };
    let (first, second, beside) = (job(1), job(2), async { go.send(()) });
    let (first, second, _) = tokio::join!(biased; first, second, beside);
    held.await.unwrap().unwrap();
    first.unwrap();
    second.unwrap();
    assert_eq!(ran.load(std::sync::atomic::Ordering::SeqCst), 2);
    assert_eq!(rows(&writer).await, [1, 2]);
}

#[tokio::test]
async fn a_single_failing_job_rolls_its_transaction_back() {
    let writer = writer();
    let failing = writer.submit(|c| {
        insert(c, 1)?;
        Err::<(), _>(StoreError::Fenced)
    });
    assert!(matches!(failing.await, Err(StoreError::Fenced)));
    assert_eq!(writer.counts().commits, 0);
    assert!(rows(&writer).await.is_empty());
}

#[tokio::test]
async fn when_the_commit_fails_the_whole_group_fails() {
    let writer = writer();
    let deferred = "PRAGMA foreign_keys = ON; CREATE TABLE child (n INTEGER REFERENCES t (n) DEFERRABLE INITIALLY DEFERRED)";
    // Outside a transaction, since the pragma has no effect inside one.
    writer.submit(move |c| Ok(c.execute_batch(&format!("COMMIT; {deferred}; BEGIN IMMEDIATE"))?)).await.unwrap();
    let (go, held) = hold(&writer).await;
    let good = writer.submit(|c| insert(c, 1));
    let poisoned = writer.submit(|c| Ok(c.execute_batch("INSERT INTO child VALUES (99)")?));
    let release = async { go.send(()) };
    let (good, poisoned, _) = tokio::join!(biased; good, poisoned, release);
    held.await.unwrap().unwrap();
    assert!(matches!(good, Err(StoreError::Unavailable(_))), "{good:?}");
    assert!(matches!(poisoned, Err(StoreError::Unavailable(_))), "{poisoned:?}");
    assert!(rows(&writer).await.is_empty());
    writer.submit(|c| insert(c, 5)).await.unwrap();
    assert_eq!(rows(&writer).await, [5], "the writer continues");
}

#[tokio::test]
async fn a_transaction_that_sqlite_rolls_back_fails_for_the_whole_group() {
    let writer = writer();
    let (go, held) = hold(&writer).await;
    let good = writer.submit(|c| insert(c, 1));
    let rolling_back = writer.submit(|c| {
        // Stands for a full disk: SQLite rolls back by itself and reports an error.
        c.execute_batch("ROLLBACK")?;
        Err::<(), _>(StoreError::Unavailable("full".to_owned()))
    });
    let release = async { go.send(()) };
    let (good, rolling_back, _) = tokio::join!(biased; good, rolling_back, release);
    held.await.unwrap().unwrap();
    assert!(matches!(good, Err(StoreError::Unavailable(_))), "{good:?}");
    assert!(rolling_back.is_err());
    assert!(rows(&writer).await.is_empty());
}

#[tokio::test]
async fn a_full_disk_is_reported_to_the_whole_group() {
    let writer = writer();
    let pages = |count: &'static str| move |c: &Connection| Ok(c.query_row(&format!("PRAGMA max_page_count = {count}"), [], |_| Ok(()))?);
    writer.submit(pages("3")).await.unwrap();
    let (go, held) = hold(&writer).await;
    let small = writer.submit(|c| insert(c, 1));
    let large = writer.submit(|c| Ok(c.execute_batch("CREATE TABLE large (b BLOB); INSERT INTO large VALUES (zeroblob(100000))")?));
    let release = async { go.send(()) };
    let (small, large, _) = tokio::join!(biased; small, large, release);
    held.await.unwrap().unwrap();
    assert!(matches!(large, Err(StoreError::Full(_))), "{large:?}");
    assert!(matches!(small, Ok(()) | Err(StoreError::Full(_))), "{small:?}");
    assert_eq!(rows(&writer).await.len(), usize::from(small.is_ok()));
    assert!(writer.is_full(), "a read does not show whether there is space");
    writer.submit(pages("1000")).await.unwrap();
    writer.submit(|c| insert(c, 7)).await.unwrap();
    assert!(writer.is_full(), "a small write proves nothing");
    writer.disk_has_space();
    assert!(!writer.is_full());
}
