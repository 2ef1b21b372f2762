//! Saves text that is being written about once a second, all turns of the process in one write, so that a client that returns after a
//! restart sees it. A turn whose text is complete before the first checkpoint writes nothing.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;
use werkruf_contract::Clock;
use werkruf_store::{Cluster, Streams, crash};

use super::broadcast::{Broadcast, TICKS};

/// The longest time that new text stays out of the store.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Checkpoints<'a> {
    pub(crate) streams: &'a dyn Streams,
    pub(crate) cluster: &'a dyn Cluster,
    pub(crate) broadcast: &'a Broadcast,
    pub(crate) clock: &'a Clock,
    pub(crate) tasks: &'a TaskTracker,
}

impl Checkpoints<'_> {
    /// Saves text until the last turn of a draining process has ended.
    pub(crate) async fn run(&self) {
        let mut ticks = interval(EVERY / TICKS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.tasks.wait() => return,
                _ = ticks.tick() => self.save_due().await,
            }
        }
    }

    async fn save_due(&self) {
        let _guard = self.broadcast.lock_checkpoint().await;
        let due = self.broadcast.due_for_checkpoint();
        if due.is_empty() {
            return;
        }
        crash::point("before_partial");
        match self.streams.save_partials(due, self.clock.now()).await {
            Ok(_) => self.cluster.notify(),
            Err(error) => {
                tracing::warn!(%error, "the text that is being written could not be saved; trying again");
                self.broadcast.checkpoint_failed();
            }
        }
        crash::point("after_partial");
    }
}
