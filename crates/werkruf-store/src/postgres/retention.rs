//! [`Retention`] on PostgreSQL: over all tenants, and therefore as `werkruf_system`. Functions of the schema (`functions/retention.sql`)
//! decide what a batch may delete. Several processes may sweep at once; each skips what another one has locked.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::only;
use crate::budgets::COUNTER_AGE;
use crate::module::expiring;
use crate::retention::{ALERT_AGE, CONTACT_AGE, NOTIFICATION_AGE};
use crate::{DeletedEvents, Retention, RowKey, StoreError, StoreFuture, StreamKey, Sweep, Sweepable, Swept, crash};

/// The most expired rows of one table that one statement deletes.
const EXPIRED: u32 = 500;

impl Retention for PostgresStore {
    fn sweep(&self, sweep: Sweep, after: Option<RowKey>) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            if sweep.rows == Sweepable::Events && !sweep.dry_run {
                let after = after.map(|key| StreamKey { tenant_id: key.tenant_id, stream_id: key.id });
                let DeletedEvents { events, next } = self.delete_old_events(sweep.before, after).await?;
                let next = next.map(|key| RowKey { tenant_id: key.tenant_id, id: key.stream_id });
                return Ok(Swept { rows: u64::try_from(events).unwrap_or(u64::MAX), conversations: 0, next });
            }
            self.sweep_batch(sweep, after).await
        })
    }

    fn delete_expired(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let (now, mut deleted) = (ms(now), 0);
            // A window lasts a minute. By the clock of the database, which also starts the windows.
            let sql = "DELETE FROM rate_windows WHERE window_start < clock_timestamp() - interval '2 minutes'";
            self.query(DbRole::System, sql, &[]).await?;
            let forgotten = ms(now.checked_sub(CONTACT_AGE).unwrap_or(now));
            let ended = ms(now.checked_sub(ALERT_AGE).unwrap_or(now));
            let arrived = ms(now.checked_sub(NOTIFICATION_AGE).unwrap_or(now));
            let old = ms(now.checked_sub(COUNTER_AGE).unwrap_or(now));
            for (table, condition, until) in [
                ("budget_periods", "reserved = 0 AND period_start", old),
                ("inbox", "turn_id IS NULL AND expires_at", now),
                ("connection_requests", "expires_at", now),
                ("outbox", "channel = 'webhook' AND status = 'sent' AND updated_at", arrived),
                ("alerts", "(once OR resolved_at IS NOT NULL) AND seen_at", ended),
                ("contacts", "user_id IS NULL AND conversation_id IS NULL AND updated_at", forgotten),
            ] {
                deleted += self.query(DbRole::System, &expired_sql(table, condition), &[p(&until)]).await?.len() as u64;
            }
            for (table, column) in expiring(self.modules) {
                deleted += self.query(DbRole::System, &expired_sql(table, column), &[p(&now)]).await?.len() as u64;
            }
            Ok(deleted)
        })
    }
}

/// Deletes a batch of the rows with a time up to $1.
fn expired_sql(table: &str, condition: &str) -> String {
    format!(
        "DELETE FROM {table} WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM {table} WHERE {condition} <= $1 LIMIT {EXPIRED} FOR UPDATE SKIP LOCKED)) RETURNING true"
    )
}

impl PostgresStore {
    async fn sweep_batch(&self, sweep: Sweep, after: Option<RowKey>) -> Result<Swept, StoreError> {
        let function = match sweep.rows {
            Sweepable::Messages => "sweep_messages",
            Sweepable::Events => "count_old_events",
            Sweepable::Calls => "sweep_calls",
            Sweepable::Usage => "sweep_usage",
            Sweepable::Outbox => "sweep_outbox",
        };
        let sql = format!("SELECT deleted_rows, deleted_conversations, next_tenant, next_id FROM {function}($1, $2, $3, $4, $5)");
        self.with(DbRole::System, move |transaction| {
            let sql = sql.clone();
            Box::pin(async move {
                // No row has the nil id, so a sweep that starts after it misses nothing.
                let RowKey { tenant_id, id } = after.unwrap_or(RowKey { tenant_id: Uuid::nil(), id: Uuid::nil() });
                let (before, now) = (ms(sweep.before), ms(sweep.now));
                let rows = transaction.query(&sql, &[p(&before), p(&now), p(&tenant_id), p(&id), p(&sweep.dry_run)]).await?;
                crash::point("inside_retention");
                let counted = |number: i64| u64::try_from(number).unwrap_or(0);
                Ok(only(&rows, |columns| {
                    let (rows, conversations) = (counted(columns.int()?), counted(columns.int()?));
                    let next = columns.id_or_null()?.zip(columns.id_or_null()?).map(|(tenant_id, id)| RowKey { tenant_id, id });
                    Ok(Swept { rows, conversations, next })
                })?)
            })
        })
        .await
    }
}
