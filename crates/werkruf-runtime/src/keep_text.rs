//! Text that is being written is kept about once a second, for all turns of the process in one write, so that somebody who
//! comes back after a restart sees what was there. A turn whose text comes in less than that costs nothing.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use werkruf_store::crash;

use crate::hub::TICKS;
use crate::runtime::{House, Runtime};

/// How old the text of a long answer may get in the store.
const EVERY: Duration = Duration::from_secs(1);

impl Runtime {
    /// Keeps text until the last turn of a drained house has ended.
    pub async fn save_partial_text(&self) {
        let mut ticks = interval(EVERY / TICKS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.house.tasks.wait() => return,
                _ = ticks.tick() => self.house.keep_due_text().await,
            }
        }
    }
}

impl House {
    async fn keep_due_text(&self) {
        let _passage = self.hub.keep().await;
        let due = self.hub.due();
        if due.is_empty() {
            return;
        }
        crash::point("before_partial");
        match self.parts.streams.save_partials(due, self.parts.clock.now()).await {
            Ok(_) => self.parts.cluster.notify(),
            Err(error) => {
                tracing::warn!(%error, "the text that is being written could not be kept; trying again");
                self.hub.due_again();
            }
        }
        crash::point("after_partial");
    }
}
