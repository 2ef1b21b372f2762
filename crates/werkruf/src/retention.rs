//! Letting go of what was kept long enough. Nothing is deleted unless `[retention]` says so.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use werkruf_store::{Retention, StoreError, Sweep, Sweepable, Swept};

use crate::app::App;
use crate::config::RetentionConfig;

/// How often a running server looks.
const EVERY: Duration = Duration::from_secs(3600);

/// What one run did to one kind of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gone {
    /// That went, or would have.
    pub rows: u64,
    /// They were older than this; `None` where they are kept for good.
    pub before: Option<Timestamp>,
}

/// What one run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    pub messages: Gone,
    pub events: Gone,
    pub calls: Gone,
    pub usage: Gone,
    /// That were left with nothing and went; not known of a run that only counts.
    pub conversations: u64,
}

impl Run {
    const fn rows(&self) -> u64 {
        self.messages.rows + self.events.rows + self.calls.rows + self.usage.rows + self.conversations
    }
}

/// Deletes what is older than the configuration wants, in batches, so that turns go on between them; or only counts it.
pub async fn run(app: &App, dry_run: bool) -> Result<Run, StoreError> {
    let wanted = app.config.retention;
    let mut run = Run::default();
    // Messages after calls: a turn that has lost both goes with the last of them.
    for (rows, days) in [
        (Sweepable::Events, wanted.events_days),
        (Sweepable::Calls, wanted.calls_days),
        (Sweepable::Messages, wanted.messages_days),
        (Sweepable::Usage, wanted.usage_days),
    ] {
        let Some(days) = days else { continue };
        let now = app.clock.now();
        let age = SignedDuration::from_hours(i64::from(days).saturating_mul(24));
        let before = now.checked_sub(age).unwrap_or(Timestamp::MIN);
        let swept = sweep(app.store.as_ref(), Sweep { rows, before, now, dry_run }).await?;
        let gone = Gone { rows: swept.rows, before: Some(before) };
        run.conversations += swept.conversations;
        match rows {
            Sweepable::Messages => run.messages = gone,
            Sweepable::Events => run.events = gone,
            Sweepable::Calls => run.calls = gone,
            Sweepable::Usage => run.usage = gone,
        }
    }
    Ok(run)
}

async fn sweep<S: Retention + ?Sized>(store: &S, sweep: Sweep) -> Result<Swept, StoreError> {
    let (mut total, mut after) = (Swept::default(), None);
    loop {
        let Swept { rows, conversations, next } = store.sweep(sweep, after).await?;
        total.rows += rows;
        total.conversations += conversations;
        after = next;
        if after.is_none() {
            return Ok(total);
        }
    }
}

/// Runs at the start and every hour.
pub async fn watch(app: &App) {
    let wanted = app.config.retention;
    if wanted == RetentionConfig::default() {
        return;
    }
    if let Some(days) = wanted.messages_days
        && wanted.events_days.is_none_or(|events| events > days)
    {
        tracing::warn!("events repeat what messages say, and [retention] keeps them longer; set events_days to {days} or less");
    }
    loop {
        match run(app, false).await {
            Ok(run) if run.rows() == 0 => {}
            Ok(Run { messages, events, calls, usage, conversations }) => tracing::info!(
                messages = messages.rows,
                events = events.rows,
                calls = calls.rows,
                usage = usage.rows,
                conversations,
                "old rows were deleted"
            ),
            Err(error) => tracing::warn!(%error, "old rows could not be deleted; trying again in an hour"),
        }
        tokio::time::sleep(EVERY).await;
    }
}
