//! Sends one claimed row and writes what became of it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::task::AbortOnDropHandle;
use werkruf_contract::Tenant;
use werkruf_store::{ATTEMPTS_EXHAUSTED, Claimed, NewOutboxRow, OutboxRow, SendEnd, Settlement, StoreError, crash};

use crate::channel::{Channel, SendResult};
use crate::engine::Engine;
use crate::journal::dead_letter;

/// The time for one sending.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Seconds between the attempts of a row for a person. Later rows for that person wait behind it, so an hour is the longest pause.
const PAUSES_FOR_PEOPLE: [u64; 9] = [1, 2, 4, 8, 30, 120, 300, 900, 3600];
/// Seconds between the attempts of a row for a program, which may be away for a night.
const PAUSES_FOR_PROGRAMS: [u64; 9] = [1, 4, 16, 64, 256, 1024, 4096, 10_800, 10_800];
/// How long a row waits whose channel is not in the configuration: an operator has to act.
const NOT_CONFIGURED_PAUSE: Duration = Duration::from_secs(3600);
/// The longest pause that a channel may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 3600);
/// Between two attempts to write the end of a sending.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_SETTLE_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Delivery {
    engine: Arc<Engine>,
    /// Then the claim ends: the row counts as doubtful.
    until: Timestamp,
}

impl Delivery {
    pub(super) const fn new(engine: Arc<Engine>, until: Timestamp) -> Self {
        Self { engine, until }
    }

    /// Sends a row, unless it is given up, and settles it.
    pub(super) async fn deliver(self, claimed: Claimed) {
        crash::point("outbox_claimed");
        let (row, end) = match claimed {
            Claimed::Send(row) => {
                let (result, reconcile_after) = match self.channel_of(&row).await {
                    Ok(Some(channel)) => (self.send(&channel, &row).await, channel.reconcile_after()),
                    Ok(None) => (not_configured(&row), Duration::ZERO),
                    Err(error) => (not_read(&error), Duration::ZERO),
                };
                crash::point("outbox_sent");
                let end = end_of(result, &row, reconcile_after, self.engine.store.clock.now(), self.engine.store.clock.chance());
                (row, end)
            }
            Claimed::GiveUp { row, code } => (row, SendEnd::Dead { code: code.to_owned(), message: "given up".to_owned() }),
        };
        log(&row, &end);
        self.engine.store.models.metrics.sent(&end);
        match self.settle(&row, end).await {
            Ok(true) => crash::point("outbox_settled"),
            Ok(false) => tracing::debug!(outbox_id = %row.id, "a report settled the row first"),
            Err(error) => tracing::error!(outbox_id = %row.id, %error, "the end of a sending was not written; the row counts as doubtful"),
        }
    }

    /// The channel of a row, unless the row goes to a webhook that now belongs to another tenant.
    async fn channel_of(&self, row: &OutboxRow) -> Result<Option<Arc<dyn Channel>>, StoreError> {
        let slug = self.engine.tenant_slug(row.tenant_id).await?;
        let (setup, tenant) = (self.engine.setup(), Tenant { id: row.tenant_id, slug: &slug });
        let channel = setup.channels.find(&row.recipient.channel).cloned();
        Ok(channel.filter(|_| !setup.channels.refuse(tenant, &row.recipient)))
    }

    /// One sending, in a task of its own: a channel that panics or hangs harms no other row.
    async fn send(&self, channel: &Arc<dyn Channel>, row: &OutboxRow) -> SendResult {
        let (channel, row, outbox_id) = (Arc::clone(channel), row.clone(), row.id);
        let task = AbortOnDropHandle::new(self.engine.tasks.spawn(async move { channel.send(&row).await }));
        match tokio::time::timeout(SEND_TIMEOUT, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => {
                tracing::error!(%outbox_id, %error, "a channel panicked while it sent a row");
                SendResult::Unknown { code: "channel_panicked".to_owned(), message: "the channel broke while it sent this".to_owned() }
            }
            Err(_) => SendResult::Unknown { code: "no_answer".to_owned(), message: "the channel did not answer in time".to_owned() },
        }
    }

    /// Writes the end. A database that does not answer is tried again until the process ends, because only this process knows the end.
    /// A process that drains waits no longer than the claim.
    async fn settle(&self, row: &OutboxRow, end: SendEnd) -> Result<bool, StoreError> {
        let engine = &self.engine;
        let mut pause = SETTLE_PAUSE;
        loop {
            let goes_on = || !engine.stopping.is_raised() || engine.store.clock.now() < self.until;
            match self.try_settle(row, end.clone()).await {
                Err(error) if error.is_retryable() && goes_on() => tokio::time::sleep(pause).await,
                settled => return settled,
            }
            pause = (pause * 2).min(LONGEST_SETTLE_PAUSE);
        }
    }

    async fn try_settle(&self, row: &OutboxRow, end: SendEnd) -> Result<bool, StoreError> {
        let announce = match &end {
            SendEnd::Dead { code, .. } => dead_letter_rows(&self.engine, row, code).await?,
            SendEnd::Sent { .. } | SendEnd::Retry { .. } | SendEnd::Unknown { .. } => Vec::new(),
        };
        let (now, owner) = (self.engine.store.clock.now(), self.engine.owner.clone());
        let (tenant_id, id, attempt) = (row.tenant_id, row.id, row.attempts);
        self.engine.store.outbox.settle(Settlement { tenant_id, id, owner, attempt, end, announce, now }).await
    }
}

/// What programs are told about a row that is dead.
pub(crate) async fn dead_letter_rows(engine: &Engine, row: &OutboxRow, code: &str) -> Result<Vec<NewOutboxRow>, StoreError> {
    let setup = engine.setup();
    let slug = engine.tenant_slug(row.tenant_id).await?;
    let tenant = Tenant { id: row.tenant_id, slug: &slug };
    Ok(dead_letter(&setup.channels, tenant, row, code, &engine.store.clock))
}

fn not_read(error: &StoreError) -> SendResult {
    SendResult::Retry { after: None, code: "database_unavailable".to_owned(), message: error.to_string() }
}

fn not_configured(row: &OutboxRow) -> SendResult {
    let message = format!("{} {} is not configured for this tenant", row.recipient.channel, row.recipient.account);
    SendResult::Retry { after: Some(NOT_CONFIGURED_PAUSE), code: "not_configured".to_owned(), message }
}

/// What a result means for the row. A recipient that recognizes a repeated sending gets a doubtful one again like a failed one.
fn end_of(result: SendResult, row: &OutboxRow, reconcile_after: Duration, now: Timestamp, chance: f64) -> SendEnd {
    let (after, code, message) = match result {
        SendResult::Sent { external_id } => return SendEnd::Sent { external_id },
        SendResult::Dead { code, message } => return SendEnd::Dead { code, message },
        SendResult::Unknown { code, message } if !row.repeatable => {
            return SendEnd::Unknown { until: now + reconcile_after, code, message };
        }
        SendResult::Unknown { code, message } => (None, code, message),
        SendResult::Retry { after, code, message } => (after, code, message),
    };
    // A channel that names a pause knows better than the schedule.
    let pause = after.unwrap_or_else(|| pause_after(row)).min(LONGEST_PAUSE);
    let at = now + pause.mul_f64(1.0 + chance / 4.0);
    if !row.may_be_tried_at(at) {
        return SendEnd::Dead { code: ATTEMPTS_EXHAUSTED.to_owned(), message: format!("the last attempt: {code}: {message}") };
    }
    SendEnd::Retry { at, code, message }
}

/// The pause of the schedule after the attempts so far.
fn pause_after(row: &OutboxRow) -> Duration {
    let pauses = if row.repeatable { PAUSES_FOR_PROGRAMS } else { PAUSES_FOR_PEOPLE };
    let at = usize::try_from(row.attempts.saturating_sub(1)).unwrap_or(usize::MAX).min(pauses.len() - 1);
    Duration::from_secs(pauses[at])
}

fn log(row: &OutboxRow, end: &SendEnd) {
    let (outbox_id, channel, attempt) = (row.id, row.recipient.channel.as_str(), row.attempts);
    match end {
        SendEnd::Sent { .. } => tracing::debug!(%outbox_id, channel, attempt, "sent"),
        SendEnd::Retry { code, .. } => tracing::info!(%outbox_id, channel, attempt, code, "not sent; another attempt follows"),
        SendEnd::Unknown { code, .. } => tracing::warn!(%outbox_id, channel, attempt, code, "perhaps sent; waiting for a report"),
        SendEnd::Dead { code, .. } => {
            tracing::warn!(%outbox_id, channel, attempt, code, "not sent; `werkruf outbox list --status dead` shows it")
        }
    }
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
