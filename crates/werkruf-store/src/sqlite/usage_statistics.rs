//! [`UsageStatistics`] on SQLite.

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{self, all, first};
use super::text::{Id, Stamp};
use crate::usage_statistics::{MAX_TURN_REQUESTS, REQUEST, Reads, settled_until, sort, start_of, sums_sql};
use crate::{StoreError, StoreFuture, TurnRequest, UsageQuery, UsageRequest, UsageStatistics, UsageSum};

impl UsageStatistics for SqliteStore {
    fn usage_sums(&self, query: UsageQuery) -> StoreFuture<'_, Vec<UsageSum>> {
        Box::pin(self.readers.list(move |c| sums(c, &query)))
    }

    fn usage_requests(
        &self,
        tenant_id: Uuid,
        from: Timestamp,
        to: Timestamp,
        after: Option<Uuid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<UsageRequest>> {
        Box::pin(self.readers.list(move |c| {
            let after_sql = if after.is_some() { AFTER } else { "?4 IS NOT NULL" };
            let sql = format!(
                "SELECT {REQUEST} FROM api_usage WHERE tenant_id = ?1 AND created_at >= ?2 AND created_at < ?3 AND {after_sql}
                 ORDER BY created_at, id LIMIT ?5"
            );
            let after = Id::from(after.unwrap_or_default());
            all(
                &mut *c.prepare_cached(&sql)?,
                params![Id::from(tenant_id), Stamp::from(from), Stamp::from(to), after, limit],
                row::usage_request,
            )
        }))
    }

    fn turn_requests(&self, tenant_id: Uuid, turn_id: Uuid, until: Uuid) -> StoreFuture<'_, Vec<TurnRequest>> {
        // Ids sort by time, so all usage rows of a turn have ids above the turn's.
        let sql = format!(
            "SELECT call_id, tokens_reasoning, tokens_total, {REQUEST} FROM api_usage WHERE +tenant_id = ?1 AND turn_id = ?2 AND id > ?2 AND id <= ?3
             ORDER BY id LIMIT {MAX_TURN_REQUESTS}"
        );
        Box::pin(self.readers.list(move |c| {
            let values = params![Id::from(tenant_id), Id::from(turn_id), Id::from(until)];
            all(&mut *c.prepare_cached(&sql)?, values, row::turn_request)
        }))
    }

    fn roll_up_usage(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let days = self.readers.list(move |c| open_days(c, settled_until(now))).await?;
            // One day is one job of the writer, so that turns write in between.
            for (tenant, day) in &days {
                let (tenant, day) = (*tenant, *day);
                self.writer.submit(move |c| roll_up(c, tenant, day)).await?;
            }
            Ok(days.len() as u64)
        })
    }
}

const AFTER: &str = "(created_at, id) > (SELECT created_at, id FROM api_usage WHERE tenant_id = ?1 AND id = ?4)";

/// The last day of a tenant that is rolled up.
const ROLLED_UP: &str = "SELECT day FROM usage_daily WHERE tenant_id = ?1 AND complete ORDER BY day DESC LIMIT 1";

fn rolled_up(c: &Connection, tenant: &Id) -> Result<Option<Date>, StoreError> {
    first(&mut *c.prepare_cached(ROLLED_UP)?, params![tenant], |columns| columns.parsed(|text| text.parse().ok()))
}

fn sums(c: &Connection, query: &UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
    let rolled_up = rolled_up(c, &Id::from(query.tenant_id))?;
    sums_after(c, query, rolled_up)
}

/// The sums, where this is the last day that was rolled up when the caller looked.
fn sums_after(c: &Connection, query: &UsageQuery, rolled_up: Option<Date>) -> Result<Vec<UsageSum>, StoreError> {
    let tenant = Id::from(query.tenant_id);
    let Reads { days, rows: [head, middle, tail] } = Reads::of(query, rolled_up);
    let values = params![
        tenant,
        query.user_id,
        days.0.to_string(),
        days.1.to_string(),
        Stamp::from(head.0),
        Stamp::from(head.1),
        Stamp::from(middle.0),
        Stamp::from(middle.1),
        Stamp::from(tail.0),
        Stamp::from(tail.1),
        rolled_up.map(|day| day.to_string()).unwrap_or_default(),
    ];
    let sql = sums_sql(query.group_by, '?', ("substr(created_at, 1, 10)", "key"));
    let mut rows = all(&mut *c.prepare_cached(&sql)?, values, row::usage_sum)?;
    sort(&mut rows, query.group_by);
    Ok(rows)
}

const NEXT_DAY: &str = "SELECT substr(created_at, 1, 10) FROM api_usage WHERE tenant_id = ?1 AND created_at >= ?2 AND created_at < ?3 ORDER BY created_at LIMIT 1";

const NEXT_TENANT: &str = "SELECT tenant_id FROM api_usage WHERE tenant_id > ?1 ORDER BY tenant_id LIMIT 1";

/// The next day of each tenant that can be rolled up.
fn open_days(c: &Connection, until: Date) -> Result<Vec<(Uuid, Date)>, StoreError> {
    let (mut days, mut last) = (Vec::new(), Uuid::nil());
    while let Some(tenant_id) = first(&mut *c.prepare_cached(NEXT_TENANT)?, params![Id::from(last)], |columns| columns.id())? {
        let tenant = Id::from(tenant_id);
        last = tenant_id;
        let from = rolled_up(c, &tenant)?.and_then(|day| day.tomorrow().ok()).map_or(Timestamp::MIN, start_of);
        let values = params![tenant, Stamp::from(from), Stamp::from(start_of(until))];
        let next = first(&mut *c.prepare_cached(NEXT_DAY)?, values, |columns| columns.parsed(|text| text.parse().ok()))?;
        days.extend(next.map(|day| (tenant_id, day)));
    }
    Ok(days)
}

/// Adds usage rows to the rows of their days: for a whole day, or for one row that is about to be deleted.
fn add_sql(condition: &str) -> String {
    format!(
        "INSERT INTO usage_daily (tenant_id, day, user_id, model, tool_name, complete, calls, tokens_prompt, tokens_cached, tokens_completion,
           tokens_reasoning, tokens_total, cost_nano_usd, unpriced_calls, estimated_calls)
         SELECT tenant_id, substr(created_at, 1, 10), user_id, model, coalesce(tool_name, ''), 0, count(*), sum(tokens_prompt), sum(tokens_cached),
           sum(tokens_completion), sum(tokens_reasoning), sum(tokens_total), coalesce(sum(cost_nano_usd), 0), count(*) - count(cost_nano_usd),
           sum(estimated)
         FROM api_usage WHERE {condition}
         GROUP BY 1, 2, 3, 4, 5
         ON CONFLICT (tenant_id, day, user_id, model, tool_name) DO UPDATE SET calls = calls + excluded.calls,
           tokens_prompt = tokens_prompt + excluded.tokens_prompt, tokens_cached = tokens_cached + excluded.tokens_cached,
           tokens_completion = tokens_completion + excluded.tokens_completion, tokens_reasoning = tokens_reasoning + excluded.tokens_reasoning,
           tokens_total = tokens_total + excluded.tokens_total, cost_nano_usd = cost_nano_usd + excluded.cost_nano_usd,
           unpriced_calls = unpriced_calls + excluded.unpriced_calls, estimated_calls = estimated_calls + excluded.estimated_calls"
    )
}

fn roll_up(c: &Connection, tenant_id: Uuid, day: Date) -> Result<(), StoreError> {
    let tenant = Id::from(tenant_id);
    // Another run may have rolled it up since the days were listed.
    if rolled_up(c, &tenant)?.is_some_and(|last| last >= day) {
        return Ok(());
    }
    let end = day.tomorrow().map_or(Timestamp::MAX, start_of);
    let sql = add_sql("tenant_id = ?1 AND created_at >= ?2 AND created_at < ?3");
    c.prepare_cached(&sql)?.execute(params![tenant, Stamp::from(start_of(day)), Stamp::from(end)])?;
    c.prepare_cached("UPDATE usage_daily SET complete = 1 WHERE tenant_id = ?1 AND day = ?2")?.execute(params![tenant, day.to_string()])?;
    Ok(())
}

/// One row, unless its day is complete and has it already.
const IN_OPEN_DAY: &str = "id = ?1 AND NOT EXISTS (SELECT 1 FROM usage_daily AS known WHERE known.tenant_id = api_usage.tenant_id
    AND known.day = substr(api_usage.created_at, 1, 10) AND known.complete)";

/// Deletes a row. What it used stays in the sums of its day. Returns whether there was such a row.
pub(super) fn delete_summed(c: &Connection, id: Uuid) -> Result<bool, StoreError> {
    let id = Id::from(id);
    c.prepare_cached(&add_sql(IN_OPEN_DAY))?.execute(params![id])?;
    Ok(c.prepare_cached("DELETE FROM api_usage WHERE id = ?1")?.execute(params![id])? > 0)
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Clock;

    use super::*;
    use crate::{NewUsage, UsageGroup, UsageOwner, UsageRows};

    #[tokio::test]
    async fn a_day_that_is_rolled_up_between_two_reads_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::system(0);
        let store = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
        let tenant_id = clock.new_id();
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        for day in ["2026-03-01", "2026-03-02"] {
            let usage = NewUsage { tokens_total: 15, ..NewUsage::new(clock.new_id(), "openai", "gpt-5", "chat") };
            store.put_usage(UsageOwner { tenant_id, ..UsageOwner::default() }, usage, time(&format!("{day}T12:00:00Z"))).await.unwrap();
        }
        let (from, to) = (time("2026-03-01T00:00:00Z"), time("2026-03-03T00:00:00Z"));
        let query = UsageQuery { tenant_id, user_id: None, group_by: UsageGroup::Day, from, to };
        for known in [None, "2026-03-01".parse().ok()] {
            assert_eq!(store.roll_up_usage(time("2026-03-10T00:00:00Z")).await.unwrap(), 1);
            let query = query.clone();
            let sums = store.readers.list(move |c| sums_after(c, &query, known)).await.unwrap();
            let days: Vec<_> = sums.iter().map(|sum| (sum.key.as_deref().unwrap(), sum.calls, sum.tokens_total)).collect();
            assert_eq!(days, [("2026-03-01", 1, 15), ("2026-03-02", 1, 15)], "{known:?} was the last day");
        }
    }
}
