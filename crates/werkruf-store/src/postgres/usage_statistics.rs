//! [`UsageStatistics`] on PostgreSQL. Functions of the schema (`functions/usage.sql`) roll up days.

use jiff::Timestamp;
use jiff::civil::Date;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{clean_or_null, ms, p};
use super::row::{self, all, first, only};
use crate::usage_statistics::{MAX_TURN_REQUESTS, REQUEST, Reads, settled_until, sort, start_of, sums_sql};
use crate::{StoreFuture, TurnRequest, UsageQuery, UsageRequest, UsageStatistics, UsageSum};

impl UsageStatistics for PostgresStore {
    fn usage_sums(&self, query: UsageQuery) -> StoreFuture<'_, Vec<UsageSum>> {
        Box::pin(async move {
            let (tenant, role) = (query.tenant_id, DbRole::Tenant(query.tenant_id));
            let found = self.query(role, ROLLED_UP, &[p(&tenant)]).await?;
            let rolled_up: Option<Date> = first(&found, |columns| columns.parsed(|text| text.parse().ok()))?;
            let Reads { days, rows: [head, middle, tail] } = Reads::of(&query, rolled_up);
            let (user, first_day, end_day) = (clean_or_null(query.user_id.as_deref()), days.0.to_string(), days.1.to_string());
            let rolled_up = rolled_up.map(|day| day.to_string()).unwrap_or_default();
            let (first_day, end_day, rolled_up) = (first_day.as_str(), end_day.as_str(), rolled_up.as_str());
            let times = [head.0, head.1, middle.0, middle.1, tail.0, tail.1].map(ms);
            let mut values = vec![p(&tenant), p(&user), p(&first_day), p(&end_day)];
            values.extend(times.iter().map(p));
            values.push(p(&rolled_up));
            let sql = sums_sql(query.group_by, '$', DAY);
            let mut rows = all(&self.query(role, &sql, &values).await?, row::usage_sum)?;
            sort(&mut rows, query.group_by);
            Ok(rows)
        })
    }

    fn usage_requests(
        &self,
        tenant_id: Uuid,
        from: Timestamp,
        to: Timestamp,
        after: Option<Uuid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<UsageRequest>> {
        Box::pin(async move {
            let sql = format!(
                "SELECT {REQUEST} FROM api_usage WHERE tenant_id = $1 AND created_at >= $2 AND created_at < $3 AND ($4::uuid IS NULL
                   OR (created_at, id) > (SELECT created_at, id FROM api_usage WHERE tenant_id = $1 AND id = $4))
                 ORDER BY created_at, id LIMIT $5"
            );
            let (from, to, limit) = (ms(from), ms(to), i64::from(limit));
            let values = [p(&tenant_id), p(&from), p(&to), p(&after), p(&limit)];
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, row::usage_request)
        })
    }

    fn turn_requests(&self, tenant_id: Uuid, turn_id: Uuid, until: Uuid) -> StoreFuture<'_, Vec<TurnRequest>> {
        Box::pin(async move {
            let sql = format!(
                "SELECT call_id, tokens_reasoning, tokens_total, {REQUEST} FROM api_usage WHERE tenant_id = $1 AND turn_id = $2 AND id <= $3
                 ORDER BY id LIMIT {MAX_TURN_REQUESTS}"
            );
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&turn_id), p(&until)]).await?, row::turn_request)
        })
    }

    fn roll_up_usage(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let until = start_of(settled_until(now));
            // A second attempt finds the days of the first rolled up.
            let rows = self.query(DbRole::System, "SELECT roll_up_usage($1)", &[p(&until)]).await?;
            only(&rows, |columns| Ok(u64::try_from(columns.int()?).unwrap_or(0)))
        })
    }
}

/// A day is shown as text after the rows were summed: formatting a time takes longer than reading its row.
const DAY: (&str, &str) = ("date_trunc('day', created_at AT TIME ZONE 'UTC')", "to_char(key, 'YYYY-MM-DD')");

/// The last day of a tenant that is rolled up.
const ROLLED_UP: &str = "SELECT day FROM usage_daily WHERE tenant_id = $1 AND complete ORDER BY day DESC LIMIT 1";
