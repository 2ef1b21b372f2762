//! `get_todos`: lists tasks by status and due date, within the caller's permission scope.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Failure, Invocation, Reply, Tool, ToolSpec};

use super::access::{WorkspaceAccess, spec};
use super::phrase::Phrase;
use super::phrase_status::PhraseStatus;
use super::work_list::{Table, WorkArgs, WorkList, WorkStatus, list};

pub(super) struct GetTodos(pub(super) WorkspaceAccess);

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Open,
    InProgress,
    Improval,
    QualityControl,
    Done,
}

impl WorkStatus for Status {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InProgress => "in_progress",
            Self::Improval => "improval",
            Self::QualityControl => "quality_control",
            Self::Done => "done",
        }
    }

    fn of(status: PhraseStatus) -> Option<Self> {
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
    type Args = WorkArgs<Status>;
    type Output = WorkList;

    fn spec(&self) -> ToolSpec {
        let description = "Looks up todos and tasks (Tareas, Aufgaben) of a user. Filter by status, due date, person or branch. Without userId the caller's own.";
        spec("get_todos", description, Some("table_tasks:table:read"))
    }

    async fn call(&self, args: WorkArgs<Status>, invocation: Invocation) -> Result<Reply<WorkList>, Failure> {
        list(&self.0, Table::Todos, args, invocation).await
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<WorkArgs<Status>> {
        Phrase::read(text, locale, today).todos().as_ref().map(WorkArgs::of)
    }
}
