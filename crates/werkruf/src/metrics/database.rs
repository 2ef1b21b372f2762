//! Numbers that need the database. A scrape starts a read of them at most every few seconds and waits for it for a moment; otherwise it shows
//! the last ones, with their age.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;
use tokio::time::Instant;
use werkruf_store::{Measurements, OutboxStatus};

use crate::app::App;

/// The shortest time between two reads.
const PAUSE: Duration = Duration::from_secs(5);
/// A slow read is repeated after this many times its own duration, so that it takes no more than a twentieth of one connection.
const SLOW_FACTOR: u32 = 20;
/// A read that takes longer counts as failed.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a scrape waits for a read.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) struct DatabaseNumbers {
    outbox: Family<[(&'static str, &'static str); 1], Gauge>,
    approvals: Gauge,
    open_turns: Gauge,
    bytes: Gauge,
    up: Gauge,
    age: Gauge<f64, AtomicU64>,
    reads: Arc<Mutex<Reads>>,
}

#[derive(Default)]
struct Reads {
    running: bool,
    next_at: Option<Instant>,
    succeeded_at: Option<Instant>,
}

impl DatabaseNumbers {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let numbers = Self {
            outbox: Family::default(),
            approvals: Gauge::default(),
            open_turns: Gauge::default(),
            bytes: Gauge::default(),
            up: Gauge::default(),
            age: Gauge::default(),
            reads: Arc::default(),
        };
        registry.register("werkruf_outbox", "Rows of the outbox by status, in the database", numbers.outbox.clone());
        registry.register("werkruf_approvals_waiting", "Approvals that nobody has decided, in the database", numbers.approvals.clone());
        registry.register("werkruf_turns_open", "Turns of all processes that have not ended, in the database", numbers.open_turns.clone());
        registry.register("werkruf_database_bytes", "Size of the database", numbers.bytes.clone());
        registry.register("werkruf_database_up", "1 if the last read of these numbers succeeded", numbers.up.clone());
        registry.register("werkruf_database_age_seconds", "Seconds since the last read of these numbers succeeded", numbers.age.clone());
        numbers
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the numbers if the last ones are old and nobody else reads them. The read goes on when the scraper leaves.
    pub(super) async fn refresh(&self, app: &Arc<App>) {
        if self.starts_read() {
            let (done, read) = oneshot::channel();
            let (numbers, app_of_task) = (self.clone(), Arc::clone(app));
            app.tasks.spawn(async move {
                numbers.read(&app_of_task).await;
                let _ = done.send(());
            });
            let _ = tokio::time::timeout(PATIENCE, read).await;
        }
        if let Some(at) = self.reads().succeeded_at {
            self.age.set(at.elapsed().as_secs_f64());
        }
    }

    /// Whether a read is due; then it counts as running.
    fn starts_read(&self) -> bool {
        let mut reads = self.reads();
        let due = !reads.running && reads.next_at.is_none_or(|at| at <= Instant::now());
        reads.running |= due;
        due
    }

    async fn read(&self, app: &App) {
        let started = Instant::now();
        let measured = tokio::time::timeout(READ_TIMEOUT, app.monitoring_store.measurements()).await;
        let failure = match measured {
            Ok(Ok(measurements)) => {
                self.set(&measurements);
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it did not answer in time".to_owned()),
        };
        self.up.set(i64::from(failure.is_none()));
        let mut reads = self.reads();
        reads.running = false;
        reads.next_at = Some(Instant::now() + (started.elapsed() * SLOW_FACTOR).max(PAUSE));
        match failure {
            None => reads.succeeded_at = Some(Instant::now()),
            Some(why) => tracing::warn!(why, "the numbers of the database for the metrics were not read"),
        }
    }

    fn set(&self, measured: &Measurements) {
        for status in OutboxStatus::ALL {
            self.outbox.get_or_create(&[("status", status.as_str())]).set(measured.outbox_rows(status.as_str()));
        }
        self.approvals.set(measured.pending_approvals);
        self.open_turns.set(measured.open_turns);
        self.bytes.set(measured.size_bytes);
    }
}
