//! `GET /api/usage`: what the requests to model providers used and cost, and the requests one by one.

use std::sync::Arc;

use axum::Json;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use werkruf_contract::Uuid;
use werkruf_store::{UsageGroup, UsageQuery, UsageRequest, UsageSum};

use super::ApiState;
use super::body::Params;
use super::error::ApiError;
use super::page;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use crate::identity::Visibility;
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

/// How far back a statistic goes by default.
const DEFAULT_SPAN: SignedDuration = SignedDuration::from_hours(30 * 24);

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Read.on(routes!(usage))).routes(Policy::Admin.on(routes!(usage_requests)))
}

/// Selects what is summed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SumQuery {
    /// `day` (the default), `month`, `model`, `tool` or `user`.
    group_by: Option<String>,
    /// A day (`2026-11-01`) or a time, in UTC; 30 days before `to` by default.
    from: Option<String>,
    /// Exclusive. A day or a time, in UTC; the end of today by default.
    to: Option<String>,
}

/// Sums over requests to model providers.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageTotal)]
struct SumView {
    calls: i64,
    tokens_prompt: i64,
    /// Part of `tokens_prompt`.
    tokens_cached: i64,
    tokens_completion: i64,
    /// Part of `tokens_completion`.
    tokens_reasoning: i64,
    tokens_total: i64,
    /// In billionths of a US dollar, without the unpriced calls.
    cost_nano_usd: i64,
    /// Calls whose price is unknown.
    unpriced_calls: i64,
    /// Calls whose tokens are estimated, because the provider did not report them.
    estimated_calls: i64,
}

impl From<&UsageSum> for SumView {
    fn from(sum: &UsageSum) -> Self {
        Self {
            calls: sum.calls,
            tokens_prompt: sum.tokens_prompt,
            tokens_cached: sum.tokens_cached,
            tokens_completion: sum.tokens_completion,
            tokens_reasoning: sum.tokens_reasoning,
            tokens_total: sum.tokens_total,
            cost_nano_usd: sum.cost_nano_usd,
            unpriced_calls: sum.unpriced_calls,
            estimated_calls: sum.estimated_calls,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = UsageRow)]
struct RowView {
    /// The day, month, model, tool or user; null for calls without one.
    key: Option<String>,
    #[serde(flatten)]
    sum: SumView,
}

#[derive(Serialize, ToSchema)]
struct UsageReport {
    group_by: &'static str,
    /// A day, or a time where it is not the start of a day.
    from: String,
    to: String,
    /// Days and months in order; others by cost.
    rows: Vec<RowView>,
    total: SumView,
}

/// Usage and cost, of the tenant with scope admin, else of the user.
#[routing::path(get, path = "/api/usage", operation_id = "usage", tag = "usage", params(SumQuery),
    responses((status = 200, body = UsageReport), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn usage(ApiCaller { api, identity }: ApiCaller, Params(query): Params<SumQuery>) -> Result<Json<UsageReport>, ApiError> {
    let name = query.group_by.as_deref().unwrap_or("day");
    let group_by = UsageGroup::from_name(name).ok_or_else(|| {
        let names = UsageGroup::ALL.map(UsageGroup::as_str).join(", ");
        ApiError::invalid(format!("group_by takes one of {names}."))
    })?;
    let (from, to) = span(query.from.as_deref(), query.to.as_deref(), api.app.clock.now())?;
    let user_id = match identity.visibility()? {
        Visibility::All => None,
        Visibility::Own(user_id) => Some(user_id),
    };
    let sums = api.app.monitoring_store.usage_sums(UsageQuery { tenant_id: identity.tenant_id, user_id, group_by, from, to }).await?;
    let total = SumView::from(&UsageSum::total(&sums));
    let rows = sums.into_iter().map(|sum| RowView { sum: SumView::from(&sum), key: sum.key }).collect();
    Ok(Json(UsageReport { group_by: group_by.as_str(), from: shown(from), to: shown(to), rows, total }))
}

/// Selects a page of requests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RequestQuery {
    /// A day or a time, in UTC; 30 days before `to` by default.
    from: Option<String>,
    /// Exclusive; the end of today by default.
    to: Option<String>,
    /// The last id of the page before.
    after: Option<String>,
    /// 1 to 1000; 100 by default.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
}

/// One request to a model provider, or one attempt of a tool with a price.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageRequest)]
struct RequestView {
    id: Uuid,
    /// The id that the provider gave the request.
    request_id: Option<String>,
    /// When the request left.
    #[schema(value_type = String, format = DateTime)]
    at: Iso,
    took_ms: Option<i64>,
    provider: String,
    model: String,
    /// `chat`, `ask_gpt`, `embedding` or `tool`.
    operation: String,
    tool_name: Option<String>,
    tokens_prompt: i64,
    tokens_cached: i64,
    tokens_completion: i64,
    estimated: bool,
    /// Null where a price is unknown.
    cost_nano_usd: Option<i64>,
}

impl From<UsageRequest> for RequestView {
    fn from(row: UsageRequest) -> Self {
        Self {
            id: row.id,
            request_id: row.request_id,
            at: Iso(row.at),
            took_ms: row.took_ms,
            provider: row.provider,
            model: row.model,
            operation: row.operation,
            tool_name: row.tool_name,
            tokens_prompt: row.tokens_prompt,
            tokens_cached: row.tokens_cached,
            tokens_completion: row.tokens_completion,
            estimated: row.estimated,
            cost_nano_usd: row.cost_nano_usd,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct UsageRequestList {
    requests: Vec<RequestView>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// The requests of the tenant to model providers and its priced tools, oldest first, as far as retention keeps them.
#[routing::path(get, path = "/api/usage/requests", operation_id = "list_usage_requests", tag = "usage", params(RequestQuery),
    responses((status = 200, body = UsageRequestList), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn usage_requests(
    ApiCaller { api, identity }: ApiCaller,
    Params(query): Params<RequestQuery>,
) -> Result<Json<UsageRequestList>, ApiError> {
    let (from, to) = span(query.from.as_deref(), query.to.as_deref(), api.app.clock.now())?;
    let page = page::page(query.after.as_deref(), query.limit.as_deref(), None)?;
    let rows = api.app.monitoring_store.usage_requests(identity.tenant_id, from, to, page.after, page.limit).await?;
    let is_full = u32::try_from(rows.len()).is_ok_and(|found| found >= page.limit);
    let next_after = rows.last().filter(|_| is_full).map(|row| row.id);
    Ok(Json(UsageRequestList { requests: rows.into_iter().map(RequestView::from).collect(), next_after }))
}

/// The time that a request names; the last 30 days by default, today included.
fn span(from: Option<&str>, to: Option<&str>, now: Timestamp) -> Result<(Timestamp, Timestamp), ApiError> {
    let to = match to {
        Some(text) => time("to", text)?,
        None => now.to_zoned(TimeZone::UTC).date().tomorrow().ok().and_then(start).unwrap_or(now),
    };
    let from = match from {
        Some(text) => time("from", text)?,
        None => to.checked_sub(DEFAULT_SPAN).unwrap_or(Timestamp::MIN),
    };
    if from >= to {
        return Err(ApiError::invalid("from must be before to; to is exclusive."));
    }
    Ok((from, to))
}

fn time(name: &str, text: &str) -> Result<Timestamp, ApiError> {
    let date = || text.parse::<Date>().ok().filter(|_| text.len() == 10).and_then(start);
    let parsed = date().or_else(|| text.parse().ok());
    parsed.ok_or_else(|| ApiError::invalid(format!("{name} takes a day (2026-11-01) or a time with its offset (2026-11-01T08:00:00Z).")))
}

fn start(day: Date) -> Option<Timestamp> {
    day.to_zoned(TimeZone::UTC).ok().map(|start| start.timestamp())
}

/// A day where the time is its start, else the time.
fn shown(time: Timestamp) -> String {
    let day = time.to_zoned(TimeZone::UTC).date();
    if start(day) == Some(time) { day.to_string() } else { format!("{time:.3}") }
}
