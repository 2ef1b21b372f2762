//! `get_requests`: lists requests by status and due date, within the caller's permission scope.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Tool, ToolSpec};

use super::access::{WorkspaceAccess, spec};
use super::phrase::Phrase;
use super::phrase_status::PhraseStatus;
use super::work_list::{Table, WorkArgs, WorkList, WorkStatus, list};

pub(super) struct GetRequests(pub(super) WorkspaceAccess);

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Open,
    InProgress,
    Done,
    Cancelled,
}

impl WorkStatus for Status {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InProgress => "in_progress",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    fn of(status: PhraseStatus) -> Option<Self> {
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
    type Args = WorkArgs<Status>;
    type Output = WorkList;

    fn spec(&self) -> ToolSpec {
        let description = "Looks up requests (Solicitudes, Anfragen) of a user. Filter by status, due date, person or branch. Without userId the caller's own.";
        let example = r#""solicitudes abiertas de hoy" → get_requests({ status: "open", dueDate: "today" })"#;
        ToolSpec { example: example.into(), ..spec("get_requests", description, Some("table_requests:table:read")) }
    }

    async fn call(&self, args: WorkArgs<Status>, invocation: Invocation) -> Result<Reply<WorkList>, Failure> {
        list(&self.0, Table::Requests, args, invocation).await
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<WorkArgs<Status>> {
        Phrase::read(text, locale, today).requests().as_ref().map(WorkArgs::of)
    }
}
