//! What becomes of a turn whose client has left the stream that it asked for.
//!
//! Invariants: only the run that accepted the message is stopped, by its own signal, and what it then writes passes the fence of its lease. A turn
//! that another process runs, or that was taken over, has another signal and goes on. Nothing about it is stored: a turn whose process stops
//! meanwhile goes on elsewhere.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use werkruf_contract::{Cancel, Uuid};
use werkruf_store::{Cluster, StreamKey};

use super::broadcast::Broadcast;
use crate::lease::RunningTurn;

/// A client has this long to come back as a reader.
const GRACE: Duration = Duration::from_secs(2);

/// Stops a turn after its client has left.
pub struct ClientLeave {
    pub(crate) broadcast: Arc<Broadcast>,
    pub(crate) running: Arc<RunningTurn>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) stream: StreamKey,
    pub(crate) turn_id: Uuid,
    /// Raised when the process drains.
    pub(crate) stopping: Cancel,
    pub(crate) tasks: TaskTracker,
}

impl std::fmt::Debug for ClientLeave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientLeave").field("turn_id", &self.turn_id).finish_non_exhaustive()
    }
}

impl ClientLeave {
    /// The client has left: two seconds later the turn is canceled, unless somebody else reads it or the process drains. Calls that must not be
    /// repeated end first.
    pub fn stop_turn(self) {
        // Without a runtime the process ends, and the turn goes on elsewhere.
        let Ok(handle) = Handle::try_current() else { return };
        let tasks = self.tasks.clone();
        tasks.spawn_on(self.stop_unless_read(), &handle);
    }

    async fn stop_unless_read(self) {
        tokio::select! {
            biased;
            () = self.stopping.raised() => return,
            () = tokio::time::sleep(GRACE) => {}
        }
        if self.broadcast.is_read(self.stream.stream_id, self.turn_id) || self.is_read_elsewhere().await || self.stopping.is_raised() {
            return;
        }
        tracing::debug!(turn_id = %self.turn_id, "the client left its stream; the turn is canceled");
        self.running.leave();
    }

    /// Whether another process has readers of the stream. Where that cannot be told, the turn goes on.
    async fn is_read_elsewhere(&self) -> bool {
        match self.cluster.is_read(self.stream.tenant_id, self.stream.stream_id).await {
            Ok(is_read) => is_read,
            Err(error) => {
                tracing::warn!(turn_id = %self.turn_id, %error, "the readers of a stream could not be looked up; its turn goes on");
                true
            }
        }
    }
}
