//! The background loops of this process by their progress, for `/readyz`, the metrics and `doctor`.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;

/// An embedder without progress for this long counts as stalled. One request of it may take two minutes.
const EMBEDDER_STALL_MS: i64 = 180_000;
/// The outbox is looked at every ten seconds at least, turns without an owner every five.
const SCAN_STALL_MS: i64 = 60_000;

/// One background loop, by its progress.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Loop {
    /// Milliseconds since the last progress; null if there was none.
    last_progress_ms: Option<i64>,
    pub(crate) ok: bool,
}

impl Loop {
    /// A loop that counts as stalled after so many milliseconds without progress. It may not have begun yet.
    fn new(now: Timestamp, last: Option<Timestamp>, stall_ms: i64) -> Self {
        let last_progress_ms = last.map(|last| (now.as_millisecond() - last.as_millisecond()).max(0));
        Self { last_progress_ms, ok: last_progress_ms.is_none_or(|span| span < stall_ms) }
    }
}

/// The background loops of this process. One that does not exist here is null.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Loops {
    /// Writes to the database; asked by each probe.
    writer: Option<Loop>,
    /// Looks for turns that no process works on.
    recovery: Option<Loop>,
    /// Sends what people and programs are told.
    outbox: Option<Loop>,
    /// Sends the operator's alerts.
    alerts: Option<Loop>,
    /// Computes the vectors of chunks; null without an embedding model.
    embedder: Option<Loop>,
}

impl Loops {
    /// All loops but the writer, which only a probe knows.
    pub(crate) fn of(app: &App) -> Self {
        let now = app.clock.now();
        let embedder = app.knowledge.embedder().map(|embedder| {
            let last = Some(embedder.progress_ms()).filter(|millis| *millis > 0);
            Loop::new(now, last.and_then(|millis| Timestamp::from_millisecond(millis).ok()), EMBEDDER_STALL_MS)
        });
        Self {
            writer: None,
            recovery: Some(Loop::new(now, app.runtime.recovery_progress().last(), SCAN_STALL_MS)),
            outbox: Some(Loop::new(now, app.runtime.outbox_progress().last(), SCAN_STALL_MS)),
            alerts: None,
            embedder,
        }
    }

    /// All loops, with what a probe of the writer said just now.
    pub(crate) fn with_writer(app: &App, last: Option<Timestamp>, ok: bool) -> Self {
        Self { writer: Some(Loop { ok, ..Loop::new(app.clock.now(), last, i64::MAX) }), ..Self::of(app) }
    }

    /// The loops that exist here.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &Loop)> {
        let Self { writer, recovery, outbox, alerts, embedder } = self;
        let named = [("writer", writer), ("recovery", recovery), ("outbox", outbox), ("alerts", alerts), ("embedder", embedder)];
        named.into_iter().filter_map(|(name, found)| Some((name, found.as_ref()?)))
    }

    /// How long ago each loop made progress, if it did.
    pub(crate) fn ages(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let age = |found: &Loop| found.last_progress_ms.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        self.all().filter_map(move |(name, found)| Some((name, age(found)?)))
    }
}
