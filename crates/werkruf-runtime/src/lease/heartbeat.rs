//! Keeps the leases of this process where several processes share a database: one statement renews all of them, reports lost ones, and
//! reads the cancel requests that other processes left.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use werkruf_contract::Uuid;
use werkruf_store::{Cluster, LeaseReport};

use super::running::RunningTurns;
use super::wakeup::{POLL, Wakeup};
use crate::timer;

/// The shortest time between two looks, however many notifications arrive.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Heartbeat<'a> {
    pub(crate) cluster: &'a dyn Cluster,
    /// Names this process in leases.
    pub(crate) owner: &'a str,
    pub(crate) running: &'a RunningTurns,
    pub(crate) wakeup: &'a Wakeup,
    pub(crate) tasks: &'a TaskTracker,
}

impl Heartbeat<'_> {
    /// Renews leases, and reads cancel requests in between, until the last turn of a draining process has ended.
    pub(crate) async fn renew(&self, ttl: Duration) {
        let every = ttl / 3;
        let mut wakeups = self.wakeup.listen();
        let mut due = timer::now() + every;
        loop {
            tokio::select! {
                biased;
                () = self.tasks.wait() => return,
                () = wakeups.within(POLL.min(every)) => {}
            }
            if !self.running.all().iter().any(|(_, turn)| turn.lease().is_held()) {
                due = timer::now() + every;
                continue;
            }
            let sent_at = timer::now();
            // A renewal that would be late at the next look is sent now.
            let renews = sent_at + POLL.min(every) > due;
            let owner = self.owner.to_owned();
            let request = if renews { self.cluster.renew_leases(owner) } else { self.cluster.pending_cancels(owner) };
            match timeout(every, request).await {
                Ok(Ok(report)) => {
                    if renews {
                        due = sent_at + every;
                    }
                    self.apply(sent_at, renews, &report);
                }
                Ok(Err(error)) => tracing::warn!(%error, "the leases could not be renewed; trying again"),
                Err(_) => tracing::warn!("the leases could not be renewed in time; trying again"),
            }
            tokio::time::sleep(PAUSE.min(every)).await;
        }
    }

    /// Passes on the notifications of other processes.
    pub(crate) async fn forward_notifications(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.tasks.wait() => return,
                () = self.cluster.notified() => {}
            }
            self.wakeup.wake();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Stops turns whose lease is lost, and turns and calls whose cancel was requested.
    fn apply(&self, sent_at: Instant, renewed: bool, report: &LeaseReport) {
        let leases: HashMap<Uuid, i64> = report.held.iter().map(|(key, epoch)| (key.stream_id, *epoch)).collect();
        for (turn_id, turn) in self.running.all() {
            if report.canceled_turns.contains(&turn_id) {
                turn.cancel();
            }
            for call_id in &report.canceled_calls {
                turn.cancel_call(*call_id);
            }
            if !turn.lease().confirm(sent_at, renewed, &leases) {
                turn.lose();
            }
        }
    }
}
