//! `get_worktime`: working time on a day or in a range of days. Without a date: today, and whether a period is still running.

use crate::store::{Target, WorktimeQuery};
use crate::texts::TEXTS;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{ErrorCode, Failure, Invocation, Reply, Texts, Tool, ToolSpec};

use super::access::{OwnerFilter, WorkspaceAccess, failed, spec};
use super::days::{Day, Days};
use super::phrase::Phrase;
use super::render;
use super::whole_number::WholeNumber;
use super::work_period::{WorkPeriod, bounds, split_by_day};

/// A year, and about as many rows as a large branch records in a year. A query with more rows is refused, because its sum would be incomplete.
const MAX_DAYS: i32 = 366;
const MAX_ROWS: u32 = 5_000;
const MAX_LINES: usize = 20;

pub(super) struct GetWorktime(pub(super) WorkspaceAccess);

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Day as YYYY-MM-DD, or 'today', 'yesterday', 'this_week'; without any date the current working time
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<String>,
    /// First day of a span (YYYY-MM-DD)
    #[serde(rename = "startDate", skip_serializing_if = "Option::is_none")]
    start_date: Option<String>,
    /// Last day of a span (YYYY-MM-DD); without it up to today
    #[serde(rename = "endDate", skip_serializing_if = "Option::is_none")]
    end_date: Option<String>,
    /// Id of another user; leave it out for the person who asks
    #[serde(rename = "userId", skip_serializing_if = "Option::is_none")]
    user_id: Option<WholeNumber>,
    /// Id of a branch, to list everybody in it; leave it out for the person who asks
    #[serde(rename = "branchId", skip_serializing_if = "Option::is_none")]
    branch_id: Option<WholeNumber>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Worktime {
    items: Vec<Item>,
    total_minutes: i64,
    running: bool,
    message: String,
}

/// Times include the offset of the caller's time zone, so that they are unambiguous on days with 23 or 25 hours.
#[derive(Debug, Serialize, JsonSchema)]
struct Item {
    date: Date,
    start: String,
    end: Option<String>,
    minutes: i64,
}

impl Tool for GetWorktime {
    type Args = Args;
    type Output = Worktime;

    fn spec(&self) -> ToolSpec {
        let description =
            "Looks up working times: the current one, those of a day, or those of a span of days. Without userId the caller's own.";
        spec("get_worktime", description, Some("page_worktracker:page:read"))
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Worktime>, Failure> {
        let (now, zone, texts) = (self.0.clock.now(), invocation.time_zone(), invocation.texts().with(&TEXTS));
        let days = days(&args, now.to_zoned(zone.clone()).date())?;
        let owner = OwnerFilter { user_id: args.user_id, branch_id: args.branch_id };
        let row_scope = self.0.row_scope(&invocation, invocation.grant, owner).await?;
        let target = row_scope.target;
        let too_long = || Failure::validation(ErrorCode::InvalidArguments, texts.text("worktime-too-long", &[]));
        let (from, to) = bounds(days, &zone).ok_or_else(too_long)?;
        let query = WorktimeQuery { row_scope, from, to, limit: MAX_ROWS };
        let found = self.0.workspace.worktimes(invocation.principal.tenant_id, query).await.map_err(|error| failed(&error))?;
        if found.truncated {
            return Err(too_long());
        }
        let periods = split_by_day(&found.rows, days, &zone, now);
        let total_minutes = periods.iter().map(|period| period.seconds).sum::<i64>() / 60;
        let running = periods.iter().any(|period| period.end.is_none());
        let is_today = days.from <= now.to_zoned(zone.clone()).date() && now.to_zoned(zone).date() <= days.to;
        let message = message(&texts, days, target, &periods, total_minutes, is_today.then_some(running));
        let items = periods.iter().map(item).collect();
        let mut reply = Reply::new(Worktime { items, total_minutes, running, message: message.clone() });
        reply.message = Some(message);
        Ok(reply)
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let wanted = Phrase::read(text, locale, today).worktime()?;
        let mut args = Args { user_id: wanted.person.map(WholeNumber), ..Args::default() };
        match wanted.span {
            Some(days) => (args.start_date, args.end_date) = (Some(days.from.to_string()), Some(days.to.to_string())),
            None => args.date = wanted.day.map(Day::text),
        }
        Some(args)
    }
}

/// The range of days that the arguments select; without a date, today.
fn days(args: &Args, today: Date) -> Result<Days, Failure> {
    let invalid = |message: &str| Err(Failure::validation(ErrorCode::InvalidArguments, message));
    let read = |field: &str, text: &str| Day::read(field, text).map(|day| day.days(today));
    let days = match (args.date.as_deref(), args.start_date.as_deref(), args.end_date.as_deref()) {
        (None, None, None) => Day::Today.days(today),
        (Some(date), None, None) => read("date", date)?,
        (Some(_), _, _) => return invalid("Give date, or startDate and endDate, not both."),
        (None, None, Some(_)) => return invalid("endDate needs a startDate."),
        (None, Some(start), None) => {
            let from = read("startDate", start)?.from;
            Days { from, to: today.max(from) }
        }
        (None, Some(start), Some(end)) => Days { from: read("startDate", start)?.from, to: read("endDate", end)?.to },
    };
    if days.to < days.from {
        return invalid("endDate must not be before startDate.");
    }
    if days.from.until(days.to).map_or(i32::MAX, |span| span.get_days()) >= MAX_DAYS {
        return invalid("The span may have at most 366 days.");
    }
    Ok(days)
}

fn item(period: &WorkPeriod) -> Item {
    let written = |at: &jiff::Zoned| at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    Item { date: period.date, start: written(&period.start), end: period.end.as_ref().map(written), minutes: period.seconds / 60 }
}

/// `running` is `Some` only if the range of days includes today.
fn message(texts: &Texts, days: Days, target: Target, periods: &[WorkPeriod], total: i64, running: Option<bool>) -> String {
    let filter = render::brackets(&render::owner(texts, target).into_iter().collect::<Vec<_>>());
    let clock = running.map(|running| texts.text(if running { "worktime-running" } else { "worktime-stopped" }, &[]));
    if periods.is_empty() {
        let nothing = render::days(texts, "worktime-none", days, &[("filter", filter.into())]);
        return clock.map_or_else(|| nothing.clone(), |clock| format!("{nothing} {clock}"));
    }
    let total = texts.duration_minutes(total);
    let mut headline = render::days(texts, "worktime", days, &[("filter", filter.into()), ("total", total.into())]);
    if let Some(clock) = clock {
        headline = format!("{headline} – {clock}");
    }
    let rest = periods.len().saturating_sub(MAX_LINES);
    let more = (rest > 0).then(|| texts.text("worktime-more", &[("count", rest.into())]));
    render::list(headline, periods.iter().take(MAX_LINES).map(|period| line(texts, period)), more)
}

fn line(texts: &Texts, period: &WorkPeriod) -> String {
    let day = ("day", texts.date(period.date).into());
    let start = ("start", texts.time(&period.start).into());
    let total = ("total", texts.duration_minutes(period.seconds / 60).into());
    match &period.end {
        Some(end) => texts.text("worktime-line", &[day, start, ("end", texts.time(end).into()), total]),
        None => texts.text("worktime-line-running", &[day, start, total]),
    }
}
