//! The background loops of this process by their progress, for `/readyz`, the metrics, alerts and `doctor`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use werkruf_runtime::AlertSources;

use crate::app::App;
use crate::routing::ToSchema;

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
    /// A loop that has nothing to do here.
    const IDLE: Self = Self { last_progress_ms: None, ok: true };

    /// A loop that counts as stalled after so many milliseconds without progress, or without any since the start of the process.
    fn new((started_at, now): (Timestamp, Timestamp), last: Option<Timestamp>, stall_ms: i64) -> Self {
        let since = |time: Timestamp| (now.as_millisecond() - time.as_millisecond()).max(0);
        Self { last_progress_ms: last.map(since), ok: since(last.unwrap_or(started_at)) < stall_ms }
    }
}

/// The background loops of this process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Loops {
    /// Writes to the database; asked by each probe.
    writer: Loop,
    /// Looks for turns that no process works on.
    recovery: Loop,
    /// Sends what people and programs are told.
    outbox: Loop,
    /// Tells the operator what is wrong.
    alerts: Loop,
    /// Computes the vectors of chunks. Without an embedding model it has nothing to do: no progress, and ok.
    embedder: Loop,
}

impl Loops {
    /// All loops but the writer, which only a probe knows.
    pub(crate) fn of(app: &App) -> Self {
        let times = (app.started_at, app.clock.now());
        let embedder = app.knowledge.embedder().map(|embedder| {
            let last = Some(embedder.progress_ms()).filter(|millis| *millis > 0);
            Loop::new(times, last.and_then(|millis| Timestamp::from_millisecond(millis).ok()), EMBEDDER_STALL_MS)
        });
        Self {
            writer: Loop::IDLE,
            recovery: Loop::new(times, app.runtime.recovery_progress().last(), SCAN_STALL_MS),
            outbox: Loop::new(times, app.runtime.outbox_progress().last(), SCAN_STALL_MS),
            alerts: Loop::new(times, app.runtime.alerts_progress().last(), SCAN_STALL_MS),
            embedder: embedder.unwrap_or(Loop::IDLE),
        }
    }

    /// All loops, with what a probe of the writer said just now.
    pub(crate) fn with_writer(app: &App, last: Option<Timestamp>, ok: bool) -> Self {
        Self { writer: Loop { ok, ..Loop::new((app.started_at, app.clock.now()), last, i64::MAX) }, ..Self::of(app) }
    }

    /// The loops by their names, without the writer.
    pub(crate) fn background(&self) -> impl Iterator<Item = (&'static str, &Loop)> {
        let Self { writer: _, recovery, outbox, alerts, embedder } = self;
        [("recovery", recovery), ("outbox", outbox), ("alerts", alerts), ("embedder", embedder)].into_iter()
    }

    /// How long ago each loop made progress, if it did.
    pub(crate) fn ages(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let age = |found: &Loop| found.last_progress_ms.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        self.background().filter_map(move |(name, found)| Some((name, age(found)?)))
    }
}

impl App {
    /// What the loop of alerts works with.
    pub fn alert_sources(self: &Arc<Self>) -> AlertSources {
        // The app waits for its tasks, so the loop must not keep it.
        let app = Arc::downgrade(self);
        let stalled = move || {
            let Some(app) = app.upgrade() else { return Vec::new() };
            Loops::of(&app).background().filter(|(_, found)| !found.ok).map(|(name, _)| name).collect()
        };
        AlertSources::new(self.monitoring_store.clone(), self.store.clone(), Box::new(stalled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_never_began_is_stalled_in_the_end() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let shown = |now: i64, last: Option<i64>| {
            let found = Loop::new((at(100), at(now)), last.map(at), SCAN_STALL_MS);
            (found.last_progress_ms, found.ok)
        };
        assert_eq!(shown(159, None), (None, true), "it may not have begun yet");
        assert_eq!(shown(160, None), (None, false));
        assert_eq!((shown(200, Some(141)), shown(200, Some(140))), ((Some(59_000), true), (Some(60_000), false)));
    }
}
