//! `get_requests`: requests by status and due date, inside what the caller may see.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Tool, ToolSpec};

use super::desk::{Desk, Whose, spec};
use super::phrase::Phrase;
use super::state::State;
use super::whole::Whole;
use super::work_list::{Asked, Table, WorkList, list};

pub(super) struct GetRequests(pub(super) Desk);

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
    user_id: Option<Whole>,
    /// Id of a branch, to list everything in it; leave it out for the person who asks
    #[serde(rename = "branchId", skip_serializing_if = "Option::is_none")]
    branch_id: Option<Whole>,
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

    const fn of(state: State) -> Option<Self> {
        match state {
            State::Open => Some(Self::Open),
            State::InProgress => Some(Self::InProgress),
            State::Done => Some(Self::Done),
            State::Cancelled => Some(Self::Cancelled),
            State::Improval | State::QualityControl => None,
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
        let whose = Whose { user_id: args.user_id, branch_id: args.branch_id };
        let asked = Asked { status: args.status.map(Status::as_str), due_date: args.due_date, whose };
        list(&self.0, Table::Requests, asked, invocation).await
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let wanted = Phrase::read(text, locale, today).requests()?;
        Some(Args {
            status: wanted.state.and_then(Status::of),
            due_date: wanted.due.map(|day| day.text()),
            user_id: wanted.person.map(Whole),
            branch_id: None,
        })
    }
}
