//! `get_todos`: lists tasks by status and due date, within the caller's permission scope.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Tool, ToolSpec};

use super::access::{OwnerFilter, WorkspaceAccess, spec};
use super::phrase::Phrase;
use super::phrase_status::PhraseStatus;
use super::whole_number::WholeNumber;
use super::work_list::{Table, WorkFilter, WorkList, list};

pub(super) struct GetTodos(pub(super) WorkspaceAccess);

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Status of the task
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
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

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Open,
    InProgress,
    Improval,
    QualityControl,
    Done,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InProgress => "in_progress",
            Self::Improval => "improval",
            Self::QualityControl => "quality_control",
            Self::Done => "done",
        }
    }

    const fn of(status: PhraseStatus) -> Option<Self> {
        match status {
            PhraseStatus::Open => Some(Self::Open),
            PhraseStatus::InProgress => Some(Self::InProgress),
            PhraseStatus::Improval => Some(Self::Improval),
            PhraseStatus::QualityControl => Some(Self::QualityControl),
            PhraseStatus::Done => Some(Self::Done),
            PhraseStatus::Cancelled => None,
        }
    }
}

impl Tool for GetTodos {
    type Args = Args;
    type Output = WorkList;

    fn spec(&self) -> ToolSpec {
        let description = "Looks up todos and tasks (Tareas, Aufgaben) of a user. Filter by status, due date, person or branch. Without userId the caller's own.";
        spec("get_todos", description, Some("table_tasks:table:read"))
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<WorkList>, Failure> {
        let owner = OwnerFilter { user_id: args.user_id, branch_id: args.branch_id };
        let filter = WorkFilter { status: args.status.map(Status::as_str), due_date: args.due_date, owner };
        list(&self.0, Table::Todos, filter, invocation).await
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let wanted = Phrase::read(text, locale, today).todos()?;
        Some(Args {
            status: wanted.status.and_then(Status::of),
            due_date: wanted.due.map(|day| day.text()),
            user_id: wanted.person.map(WholeNumber),
            branch_id: None,
        })
    }
}
