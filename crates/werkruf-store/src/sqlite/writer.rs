//! The one thread that writes. It takes whatever is queued, never waits for more, and commits it as one group.
//!
//! Invariants: nobody is answered before the COMMIT that holds their rows; a job that fails or panics leaves
//! no row and harms no neighbour; when the COMMIT fails, every job of the group fails. A job that was handed
//! over runs even when its caller has gone away.
//!
//! A savepoint around each job costs a copy of every page the job touches. So jobs that can run again go without: when one of
//! them fails, which is rare, the group is undone and all of it runs once more, each job apart.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::{Counts, StoreError};

/// Jobs in one commit at most. Every page they touch is held in memory until then.
const GROUP: usize = 64;
/// Jobs that may wait; a caller beyond that waits for room.
const QUEUE: usize = 4 * GROUP;

#[derive(Default)]
struct Tally {
    commits: AtomicU64,
    groups: AtomicU64,
    row_writes: AtomicU64,
    /// A group found no room, and nobody has found any since.
    full: AtomicBool,
}

/// The handle: dropping it lets the thread finish what is queued and joins it.
pub(super) struct Writer {
    sender: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
}

impl Writer {
    /// Gives the connection to a thread of its own.
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
        self.hand_over(once(work), Kind::Once).await
    }

    /// The same for work that may run twice, the first time in vain: what a turn writes, in the largest groups.
    pub(super) async fn submit_again<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.hand_over(work, Kind::Again).await
    }

    /// Runs `work` between two commits, outside any transaction; other jobs wait. For what SQLite does only there, such as VACUUM.
    pub(super) async fn submit_alone<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.hand_over(once(work), Kind::Alone).await
    }

    async fn hand_over<T, F>(&self, work: F, kind: Kind) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let task: Box<dyn Job> = Box::new(Task { work, result: None, reply, kind });
        let sender = self.sender.as_ref().ok_or_else(stopped)?;
        sender.send(task).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Whether a write found no room since [`Writer::found_room`].
    pub(super) fn is_full(&self) -> bool {
        self.tally.full.load(Ordering::Acquire)
    }

    /// Somebody wrote more than a turn needs. A small write proves nothing: the WAL may have a few pages left.
    pub(super) fn found_room(&self) {
        self.tally.full.store(false, Ordering::Release);
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
    /// In a transaction with others, and again when that one was undone.
    Again,
}

/// Work that is used up by running, as the writer calls it.
fn once<T>(
    work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
) -> impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static {
    let mut work = Some(work);
    move |connection| work.take().ok_or_else(stopped)?(connection)
}

/// One operation whose result is kept back until its commit.
trait Job: Send {
    /// Whether it succeeded.
    fn run(&mut self, connection: &Connection) -> bool;
    fn kind(&self) -> Kind;
    /// Whether it failed for want of room.
    fn found_no_room(&self) -> bool;
    fn answer(self: Box<Self>, lost: Option<&StoreError>);
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

    fn found_no_room(&self) -> bool {
        matches!(self.result, Some(Err(StoreError::Full(_))))
    }

    fn answer(self: Box<Self>, lost: Option<&StoreError>) {
        let result = match (self.result, lost) {
            // What failed by itself keeps its own reason.
            (Some(Err(error)), _) => Err(error),
            (_, Some(StoreError::Full(reason))) => Err(StoreError::Full(reason.clone())),
            (_, Some(reason)) => Err(StoreError::Unavailable(reason.to_string())),
            (Some(Ok(value)), None) => Ok(value),
            (None, None) => Err(stopped()),
        };
        // The caller may have gone away; the rows stand all the same.
        let _ = self.reply.send(result);
    }
}

fn run(connection: &Connection, mut receiver: mpsc::Receiver<Box<dyn Job>>, tally: &Tally) {
    let mut group = Vec::with_capacity(GROUP);
    while receiver.blocking_recv_many(&mut group, GROUP) > 0 {
        for mut job in group.extract_if(.., |job| job.kind() == Kind::Alone) {
            job.run(connection);
            job.answer(None);
        }
        if group.is_empty() {
            continue;
        }
        let before = connection.total_changes();
        let outcome = commit(connection, &mut group);
        match &outcome {
            Ok(commits) if *commits > 0 => {
                tally.row_writes.fetch_add(connection.total_changes() - before, Ordering::AcqRel);
                tally.groups.fetch_add(1, Ordering::AcqRel);
                tally.commits.fetch_add(*commits, Ordering::AcqRel);
            }
            Ok(_) => {}
            Err(reason) => tracing::error!(%reason, jobs = group.len(), "a group of writes was lost and refused"),
        }
        if matches!(outcome, Err(StoreError::Full(_))) || group.iter().any(|job| job.found_no_room()) {
            tally.full.store(true, Ordering::Release);
        }
        let lost = outcome.err();
        for job in group.drain(..) {
            job.answer(lost.as_ref());
        }
    }
}

/// Runs the group as one transaction; how many jobs it holds, or why all of it is lost.
fn commit(connection: &Connection, group: &mut [Box<dyn Job>]) -> Result<u64, StoreError> {
    execute(connection, "BEGIN IMMEDIATE")?;
    let commits = match group {
        // Alone, a job needs no savepoint: the transaction is one.
        [only] => u64::from(only.run(connection)),
        jobs => match run_all(connection, jobs) {
            Ok(commits) => commits,
            Err(reason) => return Err(undo(connection, reason)),
        },
    };
    if connection.is_autocommit() {
        // SQLite gave the transaction up by itself, as it does on a full disk.
        return if commits == 0 { Ok(0) } else { Err(rolled_back(false)) };
    }
    if commits == 0 {
        execute(connection, "ROLLBACK")?;
        return Ok(0);
    }
    execute(connection, "COMMIT").map_err(|reason| undo(connection, reason))?;
    Ok(commits)
}

/// Together where all of them can run again, else each in a savepoint of its own.
fn run_all(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<u64, StoreError> {
    if jobs.iter().all(|job| job.kind() == Kind::Again) {
        if jobs.iter_mut().all(|job| job.run(connection)) {
            return Ok(jobs.len() as u64);
        }
        if !connection.is_autocommit() {
            execute(connection, "ROLLBACK")?;
        }
        execute(connection, "BEGIN IMMEDIATE")?;
    }
    run_apart(connection, jobs)
}

fn run_apart(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<u64, StoreError> {
    let mut commits = 0;
    for job in jobs {
        execute(connection, "SAVEPOINT job")?;
        if job.run(connection) {
            commits += 1;
        } else if connection.is_autocommit() {
            return Err(rolled_back(job.found_no_room()));
        } else {
            execute(connection, "ROLLBACK TO job")?;
        }
        execute(connection, "RELEASE job")?;
    }
    Ok(commits)
}

/// Why the neighbours of a job that broke the transaction are lost too.
fn rolled_back(no_room: bool) -> StoreError {
    let reason = "the transaction was rolled back".to_owned();
    if no_room { StoreError::Full(reason) } else { StoreError::Unavailable(reason) }
}

fn undo(connection: &Connection, reason: StoreError) -> StoreError {
    if !connection.is_autocommit()
        && let Err(error) = execute(connection, "ROLLBACK")
    {
        tracing::error!(%error, "a lost group could not be rolled back");
    }
    reason
}

fn execute(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    Ok(connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(|_| ())?)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
