//! Feeds of hints: what has moved in a tenant, for the pages that are open. Nothing is read or written while no page listens.
//!
//! Invariants: one task reads for all pages of a tenant in this process, whichever process moved the rows. A page that reads too slowly, and every
//! page after a read that failed or had too many rows, is told to ask again; so a hint may be merged with a later one, never lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{broadcast, watch};
use werkruf_contract::Uuid;
use werkruf_store::{HintKind, HintRow, MAX_HINTS, StoreError};

use crate::app::App;

/// Between two reads. Everything that moves a row in between becomes one hint.
const EVERY: Duration = Duration::from_millis(300);
/// How much older than the last read a row may be that was not visible then: its transaction may take so long.
const OVERLAP: SignedDuration = SignedDuration::from_secs(5);
/// So many batches wait for a page that does not read.
const BATCHES: usize = 32;

/// What pages are told at once.
#[derive(Clone)]
pub(crate) enum HintBatch {
    Moved(Arc<[HintRow]>),
    /// Something may be missing.
    Reset,
}

/// The feeds of this process, by tenant.
#[derive(Default)]
pub(crate) struct HintFeeds(Mutex<HashMap<Uuid, Feed>>);

struct Feed {
    batches: broadcast::Sender<HintBatch>,
    /// Whether the first read is done.
    ready: watch::Receiver<bool>,
}

impl HintFeeds {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Feed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that moves in a tenant (or the server, under the nil id) after this resolves.
    pub(crate) async fn subscribe(app: &Arc<App>, tenant_id: Uuid) -> broadcast::Receiver<HintBatch> {
        let (batches, mut ready) = app.hint_feeds.join(app, tenant_id);
        // An error means that the task has ended, and then so does the subscription.
        let _ = ready.wait_for(|ready| *ready).await;
        batches
    }

    fn join(&self, app: &Arc<App>, tenant_id: Uuid) -> (broadcast::Receiver<HintBatch>, watch::Receiver<bool>) {
        let mut feeds = self.lock();
        if let Some(feed) = feeds.get(&tenant_id) {
            return (feed.batches.subscribe(), feed.ready.clone());
        }
        let (batches, subscription) = broadcast::channel(BATCHES);
        let (done, ready) = watch::channel(false);
        feeds.insert(tenant_id, Feed { batches: batches.clone(), ready: ready.clone() });
        let app_of_task = Arc::clone(app);
        app.tasks.spawn(async move { Reading::new(app_of_task, tenant_id).run(&batches, &done).await });
        (subscription, ready)
    }

    /// Ends the feed if nobody listens or the server drains. Nobody joins in between.
    fn leave(&self, tenant_id: Uuid, batches: &broadcast::Sender<HintBatch>, draining: bool) -> bool {
        let mut feeds = self.lock();
        let ends = draining || batches.receiver_count() == 0;
        if ends {
            feeds.remove(&tenant_id);
        }
        ends
    }
}

/// The task of one feed.
struct Reading {
    app: Arc<App>,
    tenant_id: Uuid,
    /// The rows of the last read, and whether they will move again.
    known: HashMap<(HintKind, Uuid), (String, bool)>,
    read_at: Timestamp,
    /// The rows before are not known.
    gap: bool,
}

impl Reading {
    fn new(app: Arc<App>, tenant_id: Uuid) -> Self {
        let read_at = app.clock.now();
        Self { app, tenant_id, known: HashMap::new(), read_at, gap: false }
    }

    async fn run(mut self, batches: &broadcast::Sender<HintBatch>, done: &watch::Sender<bool>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut first = true;
        loop {
            ticks.tick().await;
            if self.app.hint_feeds.leave(self.tenant_id, batches, self.app.runtime.is_draining()) {
                return;
            }
            let batch = self.read().await;
            if let Some(batch) = batch.filter(|_| !first) {
                // Without a page there is nobody to tell.
                let _ = batches.send(batch);
            }
            first = false;
            done.send_replace(true);
        }
    }

    /// What has moved since the last read.
    async fn read(&mut self) -> Option<HintBatch> {
        match self.rows().await {
            Ok((rows, since)) => {
                let new = |kind| rows.iter().filter(|row| row.kind == kind && row.id >= since).count();
                let full = HintKind::ALL.into_iter().any(|kind| new(kind) >= MAX_HINTS as usize);
                let moved = self.compare(rows);
                if std::mem::take(&mut self.gap) || (full && !moved.is_empty()) {
                    return Some(HintBatch::Reset);
                }
                (!moved.is_empty()).then(|| HintBatch::Moved(moved.into()))
            }
            Err(error) => {
                if !self.gap {
                    tracing::warn!(%error, tenant_id = %self.tenant_id, "what has moved could not be read; open pages are told to ask again");
                }
                self.gap = true;
                None
            }
        }
    }

    /// The rows that may have moved, and the first id of the new ones.
    async fn rows(&mut self) -> Result<(Vec<HintRow>, Uuid), StoreError> {
        let now = self.app.clock.now();
        let since = first_id(self.read_at.checked_sub(OVERLAP).unwrap_or(self.read_at));
        let mut open: Vec<Uuid> = self.known.iter().filter(|(_, (_, open))| *open).map(|((_, id), _)| *id).collect();
        // The newest ones: a message that nobody ever reports as delivered would be asked for as long as a page is open.
        open.sort_unstable_by(|a, b| b.cmp(a));
        open.truncate(MAX_HINTS as usize);
        let rows = self.app.console_store.hints(self.tenant_id, since, open).await?;
        self.read_at = now;
        Ok((rows, since))
    }

    /// Keeps the rows; returns those with another status than before.
    fn compare(&mut self, rows: Vec<HintRow>) -> Vec<HintRow> {
        let before = std::mem::take(&mut self.known);
        self.known = rows.iter().map(|row| ((row.kind, row.id), (row.status.clone(), row.open))).collect();
        let is_new = |row: &HintRow| before.get(&(row.kind, row.id)).is_none_or(|(status, _)| *status != row.status);
        rows.into_iter().filter(is_new).collect()
    }
}

/// The smallest id that a row of this time has: ids begin with the milliseconds.
pub(crate) fn first_id(time: Timestamp) -> Uuid {
    let ms = u128::try_from(time.as_millisecond()).unwrap_or(0);
    Uuid::from_u128(ms << 80)
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Clock;

    use super::*;

    #[test]
    fn ids_of_a_time_are_not_smaller_than_its_first_id() {
        let clock = Clock::system(0);
        let before = clock.now();
        let id = clock.new_id();
        assert!(first_id(before) <= id);
        assert!(first_id(before + SignedDuration::from_secs(60)) > id);
        assert_eq!(first_id(Timestamp::MIN), Uuid::nil());
    }
}
