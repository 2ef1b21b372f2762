//! Letting go of what was kept long enough. Nothing is deleted unless `[retention]` says so.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use werkruf_store::{Forgotten, StoreError};

use crate::app::App;

/// How often a running server looks.
const EVERY: Duration = Duration::from_secs(3600);

/// What one run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// Events that went.
    pub events: u64,
    /// Events from before went; `None` where they are kept for good.
    pub events_before: Option<Timestamp>,
}

/// Deletes what is older than the configuration wants, in batches, so that turns go on between them.
pub async fn run(app: &App) -> Result<Run, StoreError> {
    let Some(days) = app.config.retention.events_days else { return Ok(Run::default()) };
    let age = SignedDuration::from_hours(i64::from(days).saturating_mul(24));
    let before = app.clock.now().checked_sub(age).unwrap_or(Timestamp::MIN);
    let (mut events, mut after) = (0, None);
    loop {
        let Forgotten { events: forgotten, next } = app.streams().forget_events(before, after).await?;
        events += u64::try_from(forgotten).unwrap_or(u64::MAX);
        after = next;
        if next.is_none() {
            return Ok(Run { events, events_before: Some(before) });
        }
    }
}

/// Runs at the start and every hour.
pub async fn watch(app: &App) {
    if app.config.retention.events_days.is_none() {
        return;
    }
    loop {
        match run(app).await {
            Ok(Run { events: 0, .. }) => {}
            Ok(Run { events, .. }) => tracing::info!(events, "old events were deleted"),
            Err(error) => tracing::warn!(%error, "old events could not be deleted; trying again in an hour"),
        }
        tokio::time::sleep(EVERY).await;
    }
}
