//! Deletes rows older than `[retention]` allows; without `[retention]` none. Rows of modules that have expired are always deleted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use werkruf_store::{Act, Author, Retention, SERVER_CHAIN, StoreError, Sweep, Sweepable, Swept};

use crate::app::App;

/// The interval between two runs in a server.
const EVERY: Duration = Duration::from_secs(3600);

/// The result of one run for one kind of row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeletedRows {
    /// How many rows were deleted, or would be in a dry run.
    pub rows: u64,
    /// The cutoff time; `None` if this kind of row is never deleted.
    pub before: Option<Timestamp>,
}

/// The result of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    pub messages: DeletedRows,
    /// By the age of messages: rows of the outbox have their text.
    pub outbox: DeletedRows,
    pub events: DeletedRows,
    pub calls: DeletedRows,
    pub usage: DeletedRows,
    /// Conversations that were deleted because nothing was left in them. A dry run does not count them.
    pub conversations: u64,
}

impl Run {
    fn act(&self) -> Act {
        let Self { messages, outbox, events, calls, usage, conversations } = self;
        let rows = json!({"messages": messages.rows, "outbox": outbox.rows, "events": events.rows, "calls": calls.rows, "usage": usage.rows, "conversations": conversations});
        Act::new("retention.run", "all tenants").after(rows)
    }

    const fn rows(&self) -> u64 {
        self.messages.rows + self.outbox.rows + self.events.rows + self.calls.rows + self.usage.rows + self.conversations
    }
}

/// Deletes the rows older than the configured ages, in batches so that turns can write in between. A dry run only counts.
pub async fn run(app: &App, dry_run: bool, by: Author) -> Result<Run, StoreError> {
    let configured = app.config.retention;
    let mut run = Run::default();
    // Messages come after calls: a turn without calls and messages is deleted together with its last message.
    for (rows, days) in [
        (Sweepable::Events, configured.events_days),
        (Sweepable::Calls, configured.calls_days),
        (Sweepable::Messages, configured.messages_days),
        (Sweepable::Outbox, configured.messages_days),
        (Sweepable::Usage, configured.usage_days),
    ] {
        let Some(days) = days else { continue };
        let now = app.clock.now();
        let age = SignedDuration::from_hours(i64::from(days).saturating_mul(24));
        let before = now.checked_sub(age).unwrap_or(Timestamp::MIN);
        let swept = sweep(app.store.as_ref(), Sweep { rows, before, now, dry_run }).await?;
        let deleted = DeletedRows { rows: swept.rows, before: Some(before) };
        run.conversations += swept.conversations;
        match rows {
            Sweepable::Messages => run.messages = deleted,
            Sweepable::Outbox => run.outbox = deleted,
            Sweepable::Events => run.events = deleted,
            Sweepable::Calls => run.calls = deleted,
            Sweepable::Usage => run.usage = deleted,
        }
    }
    if !dry_run {
        // Outside the ages: statistics read the sums of days that are over.
        while app.monitoring_store.roll_up_usage(app.clock.now()).await? > 0 {}
        while app.store.delete_expired(app.clock.now()).await? > 0 {}
        // A run that deleted nothing is an act only where somebody asked for it.
        if run.rows() > 0 || by != Author::server() {
            app.record(SERVER_CHAIN, by, run.act()).await;
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

/// Runs the retention at the start and every hour.
pub async fn watch(app: &App) {
    let configured = app.config.retention;
    if let Some(days) = configured.messages_days
        && configured.events_days.is_none_or(|events| events > days)
    {
        tracing::warn!(
            "events contain the text of messages, but [retention] keeps events longer than messages; set events_days to {days} or less"
        );
    }
    loop {
        match run(app, false, Author::server()).await {
            Ok(run) if run.rows() == 0 => {}
            Ok(Run { messages, outbox, events, calls, usage, conversations }) => tracing::info!(
                messages = messages.rows,
                outbox = outbox.rows,
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
