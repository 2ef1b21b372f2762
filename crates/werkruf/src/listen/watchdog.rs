//! Ends connections whose client does not read although bytes wait to be sent. One task sweeps over all connections, so there is no
//! timer per connection and idle connections are never woken.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::registry::ConnectionRegistry;

/// The number of sweeps within the stall limit. A stalled connection ends at most one sweep late.
const SWEEPS_PER_STALL: u32 = 12;

/// Sweeps until it is dropped.
pub(super) async fn watch(registry: &ConnectionRegistry, stall: Duration) {
    let mut ticks = interval(stall / SWEEPS_PER_STALL);
    // After a pause of the process, sweeps in a burst would count as time in which the client did not read.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let ended = registry.sweep(SWEEPS_PER_STALL);
        if ended > 0 {
            tracing::warn!(connections = ended, "ended connections whose clients stopped reading");
        }
    }
}
