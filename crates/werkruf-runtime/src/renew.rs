//! Leases over several processes: kept in one statement for all turns of this one, lost ones noticed, and others' wishes heard.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use werkruf_contract::Uuid;
use werkruf_store::LeaseReport;

use crate::hold::leases;
use crate::runtime::{House, Runtime};
use crate::stir::LOOK;
use crate::timer;

/// Between two looks, however often somebody knocks.
const PAUSE: Duration = Duration::from_millis(100);

impl Runtime {
    /// Renews, and looks for wishes in between, until the last turn of a drained house has ended.
    pub(crate) async fn keep_leases(&self, ttl: Duration) {
        let house = &self.house;
        let every = ttl / 3;
        let mut stirred = house.stir.listen();
        let mut due = timer::now() + every;
        loop {
            tokio::select! {
                biased;
                () = house.tasks.wait() => return,
                () = stirred.within(LOOK.min(every)) => {}
            }
            if !house.lives().iter().any(|(_, live)| live.hold.is_held()) {
                due = timer::now() + every;
                continue;
            }
            let asked = timer::now();
            // What a tick will have missed by the next is renewed now.
            let renews = asked + LOOK.min(every) > due;
            let owner = house.owner.clone();
            let question = if renews { house.parts.cluster.renew_leases(owner) } else { house.parts.cluster.pending_cancels(owner) };
            match timeout(every, question).await {
                Ok(Ok(answer)) => {
                    if renews {
                        due = asked + every;
                    }
                    house.heed(asked, renews, &answer);
                }
                Ok(Err(error)) => tracing::warn!(%error, "the leases could not be renewed; trying again"),
                Err(_) => tracing::warn!("the leases could not be renewed in time; trying again"),
            }
            tokio::time::sleep(PAUSE.min(every)).await;
        }
    }

    /// Passes on that another process has knocked.
    pub(crate) async fn hear_knocks(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.house.tasks.wait() => return,
                () = self.house.parts.cluster.notified() => {}
            }
            self.house.stir.now();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl House {
    /// Stops what was lost, and what others want stopped.
    fn heed(&self, asked: Instant, renewed: bool, answer: &LeaseReport) {
        let held = leases(answer);
        for (turn_id, live) in self.lives() {
            if answer.canceled_turns.contains(&turn_id) {
                live.cancel_all();
            }
            for call_id in &answer.canceled_calls {
                live.cancel_call(*call_id);
            }
            if !live.hold.stands(asked, renewed, &held) {
                live.lost.raise();
            }
        }
    }

    /// Whether other processes work on the same database.
    pub(crate) fn is_shared(&self) -> bool {
        self.parts.cluster.lease_ttl().is_some()
    }

    /// The turns of this process, in order.
    pub(crate) fn lives(&self) -> Vec<(Uuid, std::sync::Arc<crate::ground::Live>)> {
        let lives = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        lives.iter().map(|(turn_id, live)| (*turn_id, std::sync::Arc::clone(live))).collect()
    }
}
