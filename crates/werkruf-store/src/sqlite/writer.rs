//! The writer thread. It takes all queued jobs, never waits for more, and commits them as one group.
//!
//! Invariants: a caller gets its result only after the COMMIT of its rows; a job that fails or panics leaves no row and does not
//! affect other jobs of its group; when the COMMIT fails, every job of the group fails. A submitted job runs even when its caller
//! has dropped the future. When the database or its WAL is removed or replaced under its name, no caller gets a result any more: what is
//! committed then would be lost.
//!
//! A savepoint around each job costs a copy of every page the job touches. Repeatable jobs therefore run without savepoints: when one
//! of them fails, which is rare, the group is rolled back and runs once more with a savepoint for each job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::files::OpenFiles;
use crate::{Counts, StoreError};

/// The most jobs in one commit. Every page they touch stays in memory until the commit.
const GROUP: usize = 64;
/// The capacity of the queue; further callers wait.
const QUEUE: usize = 4 * GROUP;

#[derive(Default)]
struct Tally {
    commits: AtomicU64,
    groups: AtomicU64,
    row_writes: AtomicU64,
    /// A write failed because the disk was full, and no later check has found space.
    full: AtomicBool,
}

/// The handle of the thread. Dropping it waits until the queued jobs are done.
pub(super) struct Writer {
    sender: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
}

impl Writer {
    /// Starts the thread, which owns the connection.
    pub(super) fn start(connection: Connection) -> Result<Self, StoreError> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let tally = Arc::new(Tally::default());
        let shared = Arc::clone(&tally);
        let thread = std::thread::Builder::new()
            .name("werkruf-writer".to_owned())
            .spawn(move || run(&connection, receiver, &shared))
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { sender: Some(sender), thread: Some(thread), tally })
    }

    /// Runs `work` inside the next commit; resolves when it is durable.
    pub(super) async fn submit<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.send(once(work), Kind::Once).await
    }

    /// Like [`Self::submit`], for work that may run a second time after a rollback. Turns write this way, in the largest groups.
    pub(super) async fn submit_repeatable<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.send(work, Kind::Repeatable).await
    }

    /// Runs `work` between two commits, outside any transaction, while other jobs wait. For statements such as VACUUM.
    pub(super) async fn submit_alone<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.send(once(work), Kind::Alone).await
    }

    async fn send<T, F>(&self, work: F, kind: Kind) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Box::new(Task { work, result: None, reply, kind })).await?;
        answer.await.map_err(|_| stopped())?
    }

    /// Apart from `send`, so that the program has this code once and not for every kind of work.
    async fn enqueue(&self, task: Box<dyn Job>) -> Result<(), StoreError> {
        let sender = self.sender.as_ref().ok_or_else(stopped)?;
        sender.send(task).await.map_err(|_| stopped())
    }

    /// Whether a write failed on a full disk since the last [`Writer::disk_has_space`].
    pub(super) fn is_full(&self) -> bool {
        self.tally.full.load(Ordering::Acquire)
    }

    /// Called after a write that is larger than a turn. A small write proves nothing: the WAL may have a few pages left.
    pub(super) fn disk_has_space(&self) {
        self.tally.full.store(false, Ordering::Release);
    }

    /// How many jobs wait for the writer.
    pub(super) fn waiting(&self) -> usize {
        self.sender.as_ref().map_or(0, |sender| sender.max_capacity() - sender.capacity())
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            commits: self.tally.commits.load(Ordering::Acquire),
            groups: self.tally.groups.load(Ordering::Acquire),
            row_writes: self.tally.row_writes.load(Ordering::Acquire),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread ended by a panic");
        }
    }
}

/// The error of each job whose transaction failed.
fn shared_failure(failure: &StoreError) -> StoreError {
    match failure {
        StoreError::Full(reason) => StoreError::Full(reason.clone()),
        StoreError::Replaced(name) => StoreError::Replaced(name.clone()),
        reason => StoreError::Unavailable(reason.to_string()),
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable("the writer has stopped".to_owned())
}

/// How a job may be run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Outside any transaction.
    Alone,
    /// In a transaction with others, and only once.
    Once,
    /// In a transaction with others, and again when that one was rolled back.
    Repeatable,
}

/// Makes an `FnOnce` callable as `FnMut`; a second call fails.
fn once<T>(
    work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
) -> impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static {
    let mut work = Some(work);
    move |connection| work.take().ok_or_else(stopped)?(connection)
}

/// One operation. Its result is sent after the commit.
trait Job: Send {
    /// Whether it succeeded.
    fn run(&mut self, connection: &Connection) -> bool;
    fn kind(&self) -> Kind;
    /// Whether it failed because the disk was full.
    fn disk_was_full(&self) -> bool;
    fn answer(self: Box<Self>, failure: Option<&StoreError>);
}

struct Task<T, F> {
    work: F,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
    kind: Kind,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(connection)))
            .unwrap_or_else(|_| Err(StoreError::Broken("a write panicked; nothing of it was stored".to_owned())));
        let done = result.is_ok();
        self.result = Some(result);
        done
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn disk_was_full(&self) -> bool {
        matches!(self.result, Some(Err(StoreError::Full(_))))
    }

    fn answer(self: Box<Self>, failure: Option<&StoreError>) {
        let result = match (self.result, failure) {
            // A job that failed by itself keeps its own error.
            (Some(Err(error)), _) => Err(error),
            (Some(Ok(value)), None) => Ok(value),
            (_, failure) => Err(failure.map_or_else(stopped, shared_failure)),
        };
        // The caller may have dropped the future; the rows are stored in any case.
        let _ = self.reply.send(result);
    }
}

fn run(connection: &Connection, mut receiver: mpsc::Receiver<Box<dyn Job>>, tally: &Tally) {
    let files = OpenFiles::of(connection);
    let mut replaced = None;
    let mut group = Vec::with_capacity(GROUP);
    while receiver.blocking_recv_many(&mut group, GROUP) > 0 {
        let (mut alone, mut failure) = (Vec::new(), None);
        if replaced.is_none() {
            alone.extend(group.extract_if(.., |job| job.kind() == Kind::Alone));
            for job in &mut alone {
                job.run(connection);
            }
            failure = run_group(connection, &mut group, tally);
            // After the commit: a write counts only if its file still has its name then.
            replaced = files.replaced().map(|name| report_replaced(connection, name));
        }
        for job in alone {
            job.answer(replaced.as_ref());
        }
        for job in group.drain(..) {
            job.answer(replaced.as_ref().or(failure.as_ref()));
        }
    }
}

/// Runs the jobs that share a transaction. Returns why they failed together.
fn run_group(connection: &Connection, group: &mut [Box<dyn Job>], tally: &Tally) -> Option<StoreError> {
    if group.is_empty() {
        return None;
    }
    let before = connection.total_changes();
    let outcome = commit(connection, group);
    match &outcome {
        Ok(commits) if *commits > 0 => {
            tally.row_writes.fetch_add(connection.total_changes() - before, Ordering::AcqRel);
            tally.groups.fetch_add(1, Ordering::AcqRel);
            tally.commits.fetch_add(*commits, Ordering::AcqRel);
        }
        Ok(_) => {}
        Err(reason) => tracing::error!(%reason, jobs = group.len(), "a group of writes failed"),
    }
    if matches!(outcome, Err(StoreError::Full(_))) || group.iter().any(|job| job.disk_was_full()) {
        tally.full.store(true, Ordering::Release);
    }
    outcome.err()
}

/// Reports the file, and copies what the open WAL has into the open database: if only the name of the WAL is gone, everything that was
/// acknowledged is then in the database.
fn report_replaced(connection: &Connection, name: &Path) -> StoreError {
    let copied = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    tracing::error!(file = %name.display(), ?copied, "a file of the database was removed or replaced; nothing is written until a restart");
    StoreError::Replaced(name.display().to_string())
}

/// Runs the group as one transaction. Returns how many jobs were committed, or why the whole group failed.
fn commit(connection: &Connection, group: &mut [Box<dyn Job>]) -> Result<u64, StoreError> {
    execute(connection, "BEGIN IMMEDIATE")?;
    let commits = match group {
        // A single job needs no savepoint: the transaction serves as one.
        [only] => u64::from(only.run(connection)),
        jobs => match run_all(connection, jobs) {
            Ok(commits) => commits,
            Err(reason) => return Err(roll_back(connection, reason)),
        },
    };
    if connection.is_autocommit() {
        // SQLite rolled the transaction back by itself, as it does on a full disk.
        return if commits == 0 { Ok(0) } else { Err(rolled_back(false)) };
    }
    if commits == 0 {
        execute(connection, "ROLLBACK")?;
        return Ok(0);
    }
    execute(connection, "COMMIT").map_err(|reason| roll_back(connection, reason))?;
    Ok(commits)
}

/// Runs the jobs without savepoints where all are repeatable, else each in its own savepoint.
fn run_all(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<u64, StoreError> {
    if jobs.iter().all(|job| job.kind() == Kind::Repeatable) {
        if jobs.iter_mut().all(|job| job.run(connection)) {
            return Ok(jobs.len() as u64);
        }
        if !connection.is_autocommit() {
            execute(connection, "ROLLBACK")?;
        }
        execute(connection, "BEGIN IMMEDIATE")?;
    }
    run_separately(connection, jobs)
}

fn run_separately(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<u64, StoreError> {
    let mut commits = 0;
    for job in jobs {
        execute(connection, "SAVEPOINT job")?;
        if job.run(connection) {
            commits += 1;
        } else if connection.is_autocommit() {
            return Err(rolled_back(job.disk_was_full()));
        } else {
            execute(connection, "ROLLBACK TO job")?;
        }
        execute(connection, "RELEASE job")?;
    }
    Ok(commits)
}

/// The error of the other jobs of a group that SQLite rolled back.
fn rolled_back(disk_full: bool) -> StoreError {
    let reason = "the transaction was rolled back".to_owned();
    if disk_full { StoreError::Full(reason) } else { StoreError::Unavailable(reason) }
}

fn roll_back(connection: &Connection, reason: StoreError) -> StoreError {
    if !connection.is_autocommit()
        && let Err(error) = execute(connection, "ROLLBACK")
    {
        tracing::error!(%error, "a failed group could not be rolled back");
    }
    reason
}

fn execute(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    Ok(connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(|_| ())?)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
