//! What `get_requests` and `get_todos` share: the same filters, rows and results.

use crate::store::{DateSpan, Listing, Target, WorkQuery, WorkRow};
use crate::texts::TEXTS;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Texts};

use super::access::{OwnerFilter, WorkspaceAccess, failed};
use super::days::{Day, Days};
use super::phrase::WantedWork;
use super::phrase_status::PhraseStatus;
use super::render;
use super::whole_number::WholeNumber;

const MAX_ROWS: u32 = 20;

/// The table to query; its key is the prefix of its text keys.
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

/// A status that the rows of one table have.
pub(super) trait WorkStatus: Copy {
    /// As the column has it.
    fn name(self) -> &'static str;
    /// The status that a sentence names; `None` where the table has no such status.
    fn of(status: PhraseStatus) -> Option<Self>;
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkArgs<S> {
    /// Only rows with this status
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<S>,
    /// Due date as YYYY-MM-DD, or 'today', 'tomorrow', 'yesterday', 'this_week', 'next_week'
    #[serde(rename = "dueDate", skip_serializing_if = "Option::is_none")]
    due_date: Option<String>,
    /// Id of another user; leave it out for the person who asks
    #[serde(rename = "userId", skip_serializing_if = "Option::is_none")]
    user_id: Option<WholeNumber>,
    /// Id of a branch, to list everything in it; leave it out for the person who asks
    #[serde(rename = "branchId", skip_serializing_if = "Option::is_none")]
    branch_id: Option<WholeNumber>,
}

impl<S: WorkStatus> WorkArgs<S> {
    /// The arguments that a sentence asks for.
    pub(super) fn of(wanted: &WantedWork) -> Self {
        Self {
            status: wanted.status.and_then(S::of),
            due_date: wanted.due.map(|day| day.text()),
            user_id: wanted.person.map(WholeNumber),
            branch_id: None,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WorkItem {
    id: i64,
    title: String,
    status: String,
    #[serde(rename = "dueDate")]
    due_date: Option<Date>,
    requester: String,
    responsible: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WorkList {
    items: Vec<WorkItem>,
    count: usize,
    truncated: bool,
    message: String,
}

/// Queries the rows and renders the message.
pub(super) async fn list<S: WorkStatus>(
    access: &WorkspaceAccess,
    table: Table,
    args: WorkArgs<S>,
    invocation: Invocation,
) -> Result<Reply<WorkList>, Failure> {
    let status = args.status.map(S::name);
    let due = args.due_date.as_deref().map(|text| Day::read("dueDate", text)).transpose()?;
    let days = due.map(|day| day.days(access.today(&invocation)));
    let owner = OwnerFilter { user_id: args.user_id, branch_id: args.branch_id };
    let row_scope = access.row_scope(&invocation, invocation.grant, owner).await?;
    let target = row_scope.target;
    let due = DateSpan { from: days.map(|days| days.from), to: days.map(|days| days.to) };
    let query = WorkQuery { row_scope, status: status.map(str::to_owned), due, limit: MAX_ROWS };
    let tenant_id = invocation.principal.tenant_id;
    let found = match table {
        Table::Requests => access.workspace.requests(tenant_id, query).await,
        Table::Todos => access.workspace.tasks(tenant_id, query).await,
    }
    .map_err(|error| failed(&error))?;
    let message = message(&invocation.texts().with(&TEXTS), table, status, days, target, &found);
    let truncated = found.truncated;
    let items: Vec<WorkItem> = found.rows.into_iter().map(WorkItem::from).collect();
    let mut reply = Reply::new(WorkList { count: items.len(), items, truncated, message: message.clone() });
    reply.message = Some(message);
    Ok(reply)
}

impl From<WorkRow> for WorkItem {
    fn from(row: WorkRow) -> Self {
        let WorkRow { id, title, status, due_date, requester, responsible } = row;
        Self { id, title, status, due_date, requester, responsible }
    }
}

fn message(texts: &Texts, table: Table, status: Option<&str>, days: Option<Days>, target: Target, found: &Listing<WorkRow>) -> String {
    let mut filter = Vec::new();
    filter.extend(status.map(|status| texts.text(&format!("status-{status}"), &[])));
    filter.extend(days.map(|days| render::days(texts, "filter-due", days, &[])));
    filter.extend(render::owner(texts, target));
    let filter = render::brackets(&filter);
    if found.rows.is_empty() {
        return texts.text(&format!("{}-none", table.key()), &[("filter", filter.into())]);
    }
    let count = found.rows.len();
    let headline = texts.text(&format!("{}-found", table.key()), &[("count", count.into()), ("filter", filter.into())]);
    let more = found.truncated.then(|| texts.text("rows-more", &[("count", count.into())]));
    render::list(headline, found.rows.iter().map(|row| line(texts, table, target, row)), more)
}

/// "Title – open, due 15.11.2026, from Ana García"; names only if they add information.
fn line(texts: &Texts, table: Table, target: Target, row: &WorkRow) -> String {
    let mut facts = vec![texts.text(&format!("status-{}", row.status), &[])];
    facts.extend(row.due_date.map(|date| texts.text("row-due", &[("day", texts.date(date).into())])));
    if table == Table::Requests || matches!(target, Target::Branch(_)) {
        facts.push(texts.text("row-requester", &[("name", render::line(&row.requester).into())]));
    }
    facts.extend(row.responsible.as_deref().map(|name| texts.text("row-responsible", &[("name", render::line(name).into())])));
    format!("{} – {}", render::line(&row.title), facts.join(", "))
}
