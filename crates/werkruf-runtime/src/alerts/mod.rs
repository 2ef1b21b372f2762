//! Tells the operator what is wrong: `watch` is the loop, `conditions` collects what is wrong now, `budget_thresholds` and `daily_overview` tell each of
//! their events once, `alert` writes an alert with its notifications and its line in the log.
//!
//! Invariants: an alert is told once, however many processes look, because the store writes it once, together with its notifications. A condition that
//! only one process sees is ended by that process, or by another when it was not seen for some minutes.

mod alert;
mod budget_thresholds;
mod conditions;
mod daily_overview;
mod disk;

mod watch;

use std::sync::Arc;

use werkruf_store::{Budgets, MonitoringStore};

pub(crate) use watch::run;

/// Where alerts are read from and written to.
pub struct AlertSources {
    store: Arc<dyn MonitoringStore>,
    budgets: Arc<dyn Budgets>,
    stalled_loops: StalledLoops,
}

/// Names the loops of the process that make no progress.
type StalledLoops = Box<dyn Fn() -> Vec<&'static str> + Send + Sync>;

impl AlertSources {
    pub fn new(store: Arc<dyn MonitoringStore>, budgets: Arc<dyn Budgets>, stalled_loops: StalledLoops) -> Self {
        Self { store, budgets, stalled_loops }
    }
}
