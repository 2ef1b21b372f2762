//! One thread and one connection that commits all waiting rows at once: the cheapest durable write of SQLite.

use std::path::Path;

use rusqlite::{Connection, params_from_iter};
use tokio::sync::{mpsc, oneshot};

use super::rows::{Row, SCHEMA};

const GROUP: usize = 256;

struct Job {
    rows: Vec<Row>,
    done: oneshot::Sender<()>,
}

/// Sends rows to the writer thread.
#[derive(Clone)]
pub struct Writer {
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    /// Opens the file with the same durability as Werkruf: WAL, synchronous FULL.
    #[expect(clippy::disallowed_methods, reason = "the floor does not use the store")]
    pub fn open(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")?;
        connection.execute_batch(SCHEMA)?;
        connection.set_prepared_statement_cache_capacity(64);
        let (jobs, mut waiting) = mpsc::channel::<Job>(4096);
        std::thread::spawn(move || {
            let mut group = Vec::with_capacity(GROUP);
            while waiting.blocking_recv_many(&mut group, GROUP) > 0 {
                if let Err(error) = write(&connection, &group) {
                    drop(error);
                    return;
                }
                for job in group.drain(..) {
                    // The send fails if the client has disconnected, which is fine.
                    let _ = job.done.send(());
                }
            }
        });
        Ok(Self { jobs })
    }

    /// Resolves when the rows are on disk.
    pub async fn commit(&self, rows: Vec<Row>) -> Option<()> {
        let (done, written) = oneshot::channel();
        self.jobs.send(Job { rows, done }).await.ok()?;
        written.await.ok()
    }
}

fn write(connection: &Connection, group: &[Job]) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for row in group.iter().flat_map(|job| &job.rows) {
        connection.prepare_cached(row.sql)?.execute(params_from_iter(&row.values))?;
    }
    connection.execute_batch("COMMIT")
}
