//! `get_requests`: lists requests by status and due date, within the caller's permission scope.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Tool, ToolSpec};

use super::access::{OwnerFilter, WorkspaceAccess, spec};
use super::phrase::Phrase;
use super::phrase_status::PhraseStatus;
use super::whole_number::WholeNumber;
use super::work_list::{Table, WorkFilter, WorkList, list};

pub(super) struct GetRequests(pub(super) WorkspaceAccess);

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Status of the request
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
    Done,
    Cancelled,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InProgress => "in_progress",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    const fn of(status: PhraseStatus) -> Option<Self> {
        match status {
            PhraseStatus::Open => Some(Self::Open),
            PhraseStatus::InProgress => Some(Self::InProgress),
            PhraseStatus::Done => Some(Self::Done),
            PhraseStatus::Cancelled => Some(Self::Cancelled),
            PhraseStatus::Improval | PhraseStatus::QualityControl => None,
        }
    }
}

impl Tool for GetRequests {
    type Args = Args;
    type Output = WorkList;

    fn spec(&self) -> ToolSpec {
        let description = "Looks up requests (Solicitudes, Anfragen) of a user. Filter by status, due date, person or branch. Without userId the caller's own.";
        spec("get_requests", description, Some("table_requests:table:read"))
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<WorkList>, Failure> {
        let owner = OwnerFilter { user_id: args.user_id, branch_id: args.branch_id };
        let filter = WorkFilter { status: args.status.map(Status::as_str), due_date: args.due_date, owner };
        list(&self.0, Table::Requests, filter, invocation).await
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let wanted = Phrase::read(text, locale, today).requests()?;
        Some(Args {
            status: wanted.status.and_then(Status::of),
            due_date: wanted.due.map(|day| day.text()),
            user_id: wanted.person.map(WholeNumber),
            branch_id: None,
        })
    }
}
