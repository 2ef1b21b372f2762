//! `get_worktime`: how long somebody worked, on a day or over several; without a date, today and whether it still runs.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Texts, Tool, ToolSpec};
use werkruf_store::{Target, WorktimeQuery};

use super::days::{Day, Days};
use super::desk::{Desk, Whose, failed, spec, words, zone};
use super::phrase::Phrase;
use super::render;
use super::stretch::{Stretch, bounds, stretches};
use super::whole::Whole;

/// A year, and as many rows as a branch of some size writes in one; beyond that a sum would be a guess.
const MOST_DAYS: i32 = 366;
const MOST_ROWS: u32 = 5_000;
const MOST_LINES: usize = 20;

pub(super) struct GetWorktime(pub(super) Desk);

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
    user_id: Option<Whole>,
    /// Id of a branch, to list everybody in it; leave it out for the person who asks
    #[serde(rename = "branchId", skip_serializing_if = "Option::is_none")]
    branch_id: Option<Whole>,
}

#[derive(Debug, Serialize)]
pub(super) struct Worktime {
    items: Vec<Item>,
    total_minutes: i64,
    running: bool,
    message: String,
}

/// Times carry the person's offset, so that they stay clear on days with 23 or 25 hours.
#[derive(Debug, Serialize)]
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
        let (now, zone, words) = (self.0.clock.now(), zone(&invocation), words(&invocation));
        let days = days(&args, now.to_zoned(zone.clone()).date())?;
        let whose = Whose { user_id: args.user_id, branch_id: args.branch_id };
        let reach = self.0.reach(&invocation, invocation.grant, whose).await?;
        let target = reach.target;
        let too_long = || Failure::validation("invalid_arguments", words.text("worktime-too-long", &[]));
        let (from, to) = bounds(days, &zone).ok_or_else(too_long)?;
        let query = WorktimeQuery { reach, from, to, limit: MOST_ROWS };
        let found = self.0.workspace.worktimes(invocation.principal.tenant_id, query).await.map_err(|error| failed(&error))?;
        if found.truncated {
            return Err(too_long());
        }
        let pieces = stretches(&found.rows, days, &zone, now);
        let total_minutes = pieces.iter().map(|piece| piece.seconds).sum::<i64>() / 60;
        let running = pieces.iter().any(|piece| piece.end.is_none());
        let is_today = days.from <= now.to_zoned(zone.clone()).date() && now.to_zoned(zone).date() <= days.to;
        let message = message(&words, days, target, &pieces, total_minutes, is_today.then_some(running));
        let items = pieces.iter().map(item).collect();
        let mut reply = Reply::new(Worktime { items, total_minutes, running, message: message.clone() });
        reply.message = Some(message);
        Ok(reply)
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let wanted = Phrase::read(text, locale, today).worktime()?;
        let mut args = Args { user_id: wanted.person.map(Whole), ..Args::default() };
        match wanted.span {
            Some(days) => (args.start_date, args.end_date) = (Some(days.from.to_string()), Some(days.to.to_string())),
            None => args.date = wanted.day.map(Day::text),
        }
        Some(args)
    }
}

/// The days meant; without any date, today.
fn days(args: &Args, today: Date) -> Result<Days, Failure> {
    let invalid = |message: &str| Err(Failure::validation("invalid_arguments", message));
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
    if days.from.until(days.to).map_or(i32::MAX, |span| span.get_days()) >= MOST_DAYS {
        return invalid("The span may have at most 366 days.");
    }
    Ok(days)
}

fn item(piece: &Stretch) -> Item {
    let written = |at: &jiff::Zoned| at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    Item { date: piece.date, start: written(&piece.start), end: piece.end.as_ref().map(written), minutes: piece.seconds / 60 }
}

/// `running` is said only where today is among the days.
fn message(words: &Texts, days: Days, target: Target, pieces: &[Stretch], total: i64, running: Option<bool>) -> String {
    let filter = render::brackets(&render::whose(words, target).into_iter().collect::<Vec<_>>());
    let clock = running.map(|running| words.text(if running { "worktime-running" } else { "worktime-stopped" }, &[]));
    if pieces.is_empty() {
        let nothing = render::days(words, "worktime-none", days, &[("filter", filter.into())]);
        return clock.map_or_else(|| nothing.clone(), |clock| format!("{nothing} {clock}"));
    }
    let total = words.duration_minutes(total);
    let mut headline = render::days(words, "worktime", days, &[("filter", filter.into()), ("total", total.into())]);
    if let Some(clock) = clock {
        headline = format!("{headline} – {clock}");
    }
    let rest = pieces.len().saturating_sub(MOST_LINES);
    let more = (rest > 0).then(|| words.text("worktime-more", &[("count", rest.into())]));
    render::list(headline, pieces.iter().take(MOST_LINES).map(|piece| line(words, piece)), more)
}

fn line(words: &Texts, piece: &Stretch) -> String {
    let day = ("day", words.date(piece.date).into());
    let start = ("start", words.time(&piece.start).into());
    let total = ("total", words.duration_minutes(piece.seconds / 60).into());
    match &piece.end {
        Some(end) => words.text("worktime-line", &[day, start, ("end", words.time(end).into()), total]),
        None => words.text("worktime-line-running", &[day, start, total]),
    }
}
