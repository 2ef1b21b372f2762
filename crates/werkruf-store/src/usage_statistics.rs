//! Sums over usage rows, by day, month, model, tool or user.
//!
//! A day that is over is rolled up into a few rows of `usage_daily`, by the retention and not by turns. Statistics read these rows, and usage rows only
//! of days that are not rolled up. Retention adds what it deletes of such a day to `usage_daily`, so no sum changes when rows are deleted.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Uuid;

use crate::StoreFuture;

/// How long after its end a day is rolled up: no request is in progress for longer, so its rows no longer change.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_hours(6);

/// What the rows of a statistic stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGroup {
    Day,
    Month,
    Model,
    Tool,
    User,
}

impl UsageGroup {
    pub const ALL: [Self; 5] = [Self::Day, Self::Month, Self::Model, Self::Tool, Self::User];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::User => "user",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.as_str() == name)
    }
}

/// Whose usage is summed, how, and of which time; `to` is exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    pub tenant_id: Uuid,
    /// Only requests for this user.
    pub user_id: Option<String>,
    pub group_by: UsageGroup,
    pub from: Timestamp,
    pub to: Timestamp,
}

/// Sums over requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageSum {
    /// A day, a month, a model, a tool or a user; `None` for requests without tool or user.
    pub key: Option<String>,
    pub calls: i64,
    pub tokens_prompt: i64,
    pub tokens_cached: i64,
    pub tokens_completion: i64,
    pub tokens_reasoning: i64,
    pub tokens_total: i64,
    pub cost_nano_usd: i64,
    /// Requests to models without a price; they are not in the cost.
    pub unpriced_calls: i64,
    /// Requests whose tokens the provider did not report.
    pub estimated_calls: i64,
}

impl UsageSum {
    /// The sum of all rows.
    pub fn total(rows: &[Self]) -> Self {
        rows.iter().fold(Self::default(), |total, row| Self {
            key: None,
            calls: total.calls.saturating_add(row.calls),
            tokens_prompt: total.tokens_prompt.saturating_add(row.tokens_prompt),
            tokens_cached: total.tokens_cached.saturating_add(row.tokens_cached),
            tokens_completion: total.tokens_completion.saturating_add(row.tokens_completion),
            tokens_reasoning: total.tokens_reasoning.saturating_add(row.tokens_reasoning),
            tokens_total: total.tokens_total.saturating_add(row.tokens_total),
            cost_nano_usd: total.cost_nano_usd.saturating_add(row.cost_nano_usd),
            unpriced_calls: total.unpriced_calls.saturating_add(row.unpriced_calls),
            estimated_calls: total.estimated_calls.saturating_add(row.estimated_calls),
        })
    }
}

/// One request, for a comparison with the provider's own list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRequest {
    pub id: Uuid,
    pub request_id: Option<String>,
    /// When the request left, or where that is not known, when its row was written.
    pub at: Timestamp,
    pub took_ms: Option<i64>,
    pub provider: String,
    pub model: String,
    pub operation: String,
    pub tool_name: Option<String>,
    pub tokens_prompt: i64,
    pub tokens_cached: i64,
    pub tokens_completion: i64,
    pub estimated: bool,
    pub cost_nano_usd: Option<i64>,
}

/// One request of a turn, its tools' included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    /// The call whose tool made the request.
    pub call_id: Option<Uuid>,
    pub tokens_reasoning: i64,
    pub tokens_total: i64,
    pub request: UsageRequest,
}

/// Reads usage rows.
pub trait UsageStatistics: Send + Sync {
    /// Sums, days and months in their order, others by cost and tokens.
    fn usage_sums(&self, query: UsageQuery) -> StoreFuture<'_, Vec<UsageSum>>;
    /// The requests whose rows were written in a time, oldest first, after the one with this id.
    fn usage_requests(
        &self,
        tenant_id: Uuid,
        from: Timestamp,
        to: Timestamp,
        after: Option<Uuid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<UsageRequest>>;
    /// The requests of a turn, oldest first, with ids up to this one.
    fn turn_requests(&self, tenant_id: Uuid, turn_id: Uuid, until: Uuid) -> StoreFuture<'_, Vec<TurnRequest>>;
    /// Rolls up the next day of every tenant that has one. Returns how many days these were.
    fn roll_up_usage(&self, now: Timestamp) -> StoreFuture<'_, u64>;
}

/// The columns of [`UsageRequest`], in its order.
pub(crate) const REQUEST: &str =
    "id, request_id, coalesce(started_at, created_at), took_ms, provider, model, operation, tool_name, tokens_prompt,
    tokens_cached, tokens_completion, estimated, cost_nano_usd";

/// At most so many requests of a turn are read.
pub(crate) const MAX_TURN_REQUESTS: u32 = 1000;

/// Sorts as [`UsageStatistics::usage_sums`] promises.
pub(crate) fn sort(rows: &mut [UsageSum], group: UsageGroup) {
    match group {
        UsageGroup::Day | UsageGroup::Month => rows.sort_unstable_by(|a, b| a.key.cmp(&b.key)),
        UsageGroup::Model | UsageGroup::Tool | UsageGroup::User => {
            rows.sort_unstable_by(|a, b| {
                (b.cost_nano_usd, b.tokens_total).cmp(&(a.cost_nano_usd, a.tokens_total)).then_with(|| a.key.cmp(&b.key))
            });
        }
    }
}

/// The times that a statistic reads: whole days from `usage_daily`, and ranges of usage rows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reads {
    pub(crate) days: (Date, Date),
    /// Disjoint; an empty one begins and ends at the same time.
    pub(crate) rows: [(Timestamp, Timestamp); 3],
}

impl Reads {
    /// `rolled_up`: the last day that is rolled up. Part of a day is only known from usage rows.
    pub(crate) fn of(query: &UsageQuery, rolled_up: Option<Date>) -> Self {
        let (first, end) = (day_from(query.from), day(query.to));
        let (start, stop) = (start_of(first), start_of(end));
        let open = rolled_up.and_then(|day| day.tomorrow().ok()).map_or(Timestamp::MIN, start_of);
        if start >= stop || open <= start {
            let days = if start >= stop { (first, first) } else { (first, end) };
            return Self { days, rows: [(query.from, query.to), (query.to, query.to), (query.to, query.to)] };
        }
        Self { days: (first, end), rows: [(query.from, start), (open.min(stop), stop), (stop, query.to)] }
    }
}

/// The start of the first day that is not yet settled: usage rows before it may be rolled up.
pub(crate) fn settled_until(now: Timestamp) -> Date {
    day(now.checked_sub(SETTLED_AFTER).unwrap_or(now))
}

/// The UTC day of a time.
pub(crate) fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

/// The first UTC day that starts at or after a time.
fn day_from(time: Timestamp) -> Date {
    let day = day(time);
    if start_of(day) == time { day } else { day.tomorrow().unwrap_or(day) }
}

/// The first instant of a UTC day.
pub(crate) fn start_of(day: Date) -> Timestamp {
    day.to_zoned(TimeZone::UTC).map_or(Timestamp::MAX, |start| start.timestamp())
}

/// The statement for sums, for both databases. Parameters: tenant, user, first day, end day, three ranges of times, and the last day that was rolled up
/// when the ranges were made: a day that was rolled up since then is in the ranges. `mark` starts a parameter; `day` is the UTC day of `created_at`,
/// and that day as text. Each part is summed by itself, so that few rows are put together.
pub(crate) fn sums_sql(group: UsageGroup, mark: char, day: (&str, &str)) -> String {
    let month = format!("substr({}, 1, 7)", day.1);
    let (rolled_up, row, shown) = match group {
        UsageGroup::Day => ("day", day.0, day.1),
        UsageGroup::Month => ("substr(day, 1, 7)", day.0, month.as_str()),
        UsageGroup::Model => ("model", "model", "key"),
        UsageGroup::Tool => ("tool_name", "coalesce(tool_name, '')", "key"),
        UsageGroup::User => ("user_id", "user_id", "key"),
    };
    let tokens = ["tokens_prompt", "tokens_cached", "tokens_completion", "tokens_reasoning", "tokens_total"];
    let counts = ["cost_nano_usd", "unpriced_calls", "estimated_calls"];
    let numbers = [&["calls"][..], &tokens, &counts].concat();
    let listed = |term: &dyn Fn(&str) -> String, names: &[&str]| names.iter().map(|name| term(name)).collect::<Vec<_>>().join(", ");
    let sum = |name: &str| format!("sum({name}) AS {name}");
    let own = format!("tenant_id = {mark}1 AND ({mark}2 IS NULL OR user_id = {mark}2)");
    let mut parts = vec![format!(
        "SELECT {rolled_up} AS key, {} FROM usage_daily WHERE {own} AND day >= {mark}3 AND day < {mark}4 AND (NOT complete OR day <= {mark}11)
         GROUP BY 1",
        listed(&sum, &numbers)
    )];
    parts.extend([(5, 6), (7, 8), (9, 10)].map(|(from, to)| {
        format!(
            "SELECT {shown}, {} FROM (SELECT {row} AS key, count(*) AS calls, {}, coalesce(sum(cost_nano_usd), 0) AS cost_nano_usd,
               count(*) - count(cost_nano_usd) AS unpriced_calls, sum(CASE WHEN estimated THEN 1 ELSE 0 END) AS estimated_calls
             FROM api_usage WHERE {own} AND created_at >= {mark}{from} AND created_at < {mark}{to} GROUP BY 1) AS summed",
            numbers.join(", "),
            listed(&sum, &tokens)
        )
    }));
    let total = |name: &str| format!("CAST(sum({name}) AS bigint)");
    format!("SELECT key, {} FROM ({}) AS parts GROUP BY key", listed(&total, &numbers), parts.join(" UNION ALL "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn reads(from: &str, to: &str, rolled_up: Option<&str>) -> Reads {
        let (from, to) = (time(from), time(to));
        let query = UsageQuery { tenant_id: Uuid::nil(), user_id: None, group_by: UsageGroup::Day, from, to };
        Reads::of(&query, rolled_up.map(|day| day.parse().unwrap()))
    }

    #[test]
    fn days_that_are_rolled_up_are_not_read_from_usage_rows() {
        let day = |text: &str| text.parse::<Date>().unwrap();
        let found = reads("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", Some("2026-03-20"));
        assert_eq!(found.days, (day("2026-03-01"), day("2026-04-01")));
        let (start, open, stop) = (time("2026-03-01T00:00:00Z"), time("2026-03-21T00:00:00Z"), time("2026-04-01T00:00:00Z"));
        assert_eq!(found.rows, [(start, start), (open, stop), (stop, stop)]);
        // Parts of days come from usage rows.
        let found = reads("2026-03-01T12:00:00Z", "2026-03-03T06:00:00Z", Some("2026-03-20"));
        let (first, end) = (time("2026-03-02T00:00:00Z"), time("2026-03-03T00:00:00Z"));
        assert_eq!(found.rows, [(time("2026-03-01T12:00:00Z"), first), (end, end), (end, time("2026-03-03T06:00:00Z"))]);
        assert_eq!(found.days, (day("2026-03-02"), day("2026-03-03")));
        let found = reads("2026-03-01T12:00:00Z", "2026-03-01T18:00:00Z", Some("2026-03-20"));
        assert_eq!(found.rows[0], (time("2026-03-01T12:00:00Z"), time("2026-03-01T18:00:00Z")));
        assert_eq!(found.days.0, found.days.1);
    }
}
