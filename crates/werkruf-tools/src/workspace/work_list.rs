//! Requests and tasks look alike: the same filters, the same rows, the same kind of answer.

use jiff::civil::Date;
use serde::Serialize;
use werkruf_contract::{Failure, Invocation, Reply, Texts};
use werkruf_store::{DateSpan, Listing, Target, WorkQuery, WorkRow};

use super::days::{Day, Days};
use super::desk::{Desk, Whose, failed, words};
use super::render;

const MOST_ROWS: u32 = 20;

/// Which of the two tables, and the first word of its texts' keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Requests,
    Todos,
}

impl Table {
    const fn key(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Todos => "todos",
        }
    }
}

/// What the arguments ask for.
pub(super) struct Asked {
    pub(super) status: Option<&'static str>,
    pub(super) due_date: Option<String>,
    pub(super) whose: Whose,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkItem {
    id: i64,
    title: String,
    status: String,
    #[serde(rename = "dueDate")]
    due_date: Option<Date>,
    requester: String,
    responsible: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkList {
    items: Vec<WorkItem>,
    count: usize,
    truncated: bool,
    message: String,
}

/// Looks the rows up and puts them into words.
pub(super) async fn list(desk: &Desk, table: Table, asked: Asked, invocation: Invocation) -> Result<Reply<WorkList>, Failure> {
    let due = asked.due_date.as_deref().map(|text| Day::read("dueDate", text)).transpose()?;
    let days = due.map(|day| day.days(desk.today(&invocation)));
    let reach = desk.reach(&invocation, invocation.grant, asked.whose).await?;
    let target = reach.target;
    let due = DateSpan { from: days.map(|days| days.from), to: days.map(|days| days.to) };
    let query = WorkQuery { reach, status: asked.status.map(str::to_owned), due, limit: MOST_ROWS };
    let tenant_id = invocation.principal.tenant_id;
    let found = match table {
        Table::Requests => desk.workspace.requests(tenant_id, query).await,
        Table::Todos => desk.workspace.tasks(tenant_id, query).await,
    }
    .map_err(|error| failed(&error))?;
    let message = message(&words(&invocation), table, asked.status, days, target, &found);
    let truncated = found.truncated;
    let items: Vec<WorkItem> = found.rows.into_iter().map(item).collect();
    let mut reply = Reply::new(WorkList { count: items.len(), items, truncated, message: message.clone() });
    reply.message = Some(message);
    Ok(reply)
}

fn item(row: WorkRow) -> WorkItem {
    let WorkRow { id, title, status, due_date, requester, responsible } = row;
    WorkItem { id, title, status, due_date, requester, responsible }
}

fn message(words: &Texts, table: Table, status: Option<&str>, days: Option<Days>, target: Target, found: &Listing<WorkRow>) -> String {
    let mut filter = Vec::new();
    filter.extend(status.map(|status| words.text(&format!("status-{status}"), &[])));
    filter.extend(days.map(|days| render::days(words, "filter-due", days, &[])));
    filter.extend(render::whose(words, target));
    let filter = render::brackets(&filter);
    if found.rows.is_empty() {
        return words.text(&format!("{}-none", table.key()), &[("filter", filter.into())]);
    }
    let count = found.rows.len();
    let headline = words.text(&format!("{}-found", table.key()), &[("count", count.into()), ("filter", filter.into())]);
    let more = found.truncated.then(|| words.text("rows-more", &[("count", count.into())]));
    render::list(headline, found.rows.iter().map(|row| line(words, table, target, row)), more)
}

/// "Title – open, due 15.11.2026, from Ana García"; names only where they say something new.
fn line(words: &Texts, table: Table, target: Target, row: &WorkRow) -> String {
    let mut facts = vec![words.text(&format!("status-{}", row.status), &[])];
    facts.extend(row.due_date.map(|date| words.text("row-due", &[("day", words.date(date).into())])));
    if table == Table::Requests || matches!(target, Target::Branch(_)) {
        facts.push(words.text("row-requester", &[("name", render::line(&row.requester).into())]));
    }
    facts.extend(row.responsible.as_deref().map(|name| words.text("row-responsible", &[("name", render::line(name).into())])));
    format!("{} – {}", render::line(&row.title), facts.join(", "))
}
