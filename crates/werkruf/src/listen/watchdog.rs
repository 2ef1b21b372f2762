//! Ends connections whose client reads nothing while bytes wait. One sweep over all of them: no timer per connection, and
//! idle ones are never woken.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::registry::ConnectionRegistry;

/// Looks within the time a client may stand still; the last comes at most one look late.
const SWEEPS_PER_STALL: u32 = 12;

/// Watches until dropped.
pub(super) async fn watch(registry: &ConnectionRegistry, stall: Duration) {
    let mut ticks = interval(stall / SWEEPS_PER_STALL);
    // Looks in a burst, after the process was paused, would be taken for time that passed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let ended = registry.sweep(SWEEPS_PER_STALL);
        if ended > 0 {
            tracing::warn!(connections = ended, "ended connections whose clients stopped reading");
        }
    }
}
