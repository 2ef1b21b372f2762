//! The lists of the workspace in an import file: requests, tasks, worktimes and cerebro_articles.

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::Connection;
use serde::Deserialize;
use werkruf_contract::{BoxFuture, Uuid};
use werkruf_store::StoreError;
use werkruf_store::import::{Checked, Faults, Fields, ImportLists, ImportRows, Known, Row, check_list, day, filled, moment};
use werkruf_store::postgres::{Fault, Transaction};

use crate::{import_postgres, import_sqlite};

const REQUEST_STATUS: [&str; 4] = ["open", "in_progress", "done", "cancelled"];
const TASK_STATUS: [&str; 5] = ["open", "in_progress", "improval", "quality_control", "done"];

/// Reads the lists.
#[derive(Debug)]
pub(crate) struct WorkspaceLists;

impl ImportLists for WorkspaceLists {
    fn names(&self) -> &'static [&'static str] {
        &["requests", "tasks", "worktimes", "cerebro_articles"]
    }

    fn read(&self, file: &mut Fields<'_>, faults: &mut Faults, values: &mut Faults) -> Box<dyn ImportRows> {
        Box::new(WorkspaceRows {
            requests: file.rows("requests", faults, values),
            tasks: file.rows("tasks", faults, values),
            worktimes: file.rows("worktimes", faults, values),
            cerebro_articles: file.rows("cerebro_articles", faults, values),
        })
    }
}

/// The rows of the lists.
#[derive(Debug, Default)]
pub struct WorkspaceRows {
    pub requests: Vec<NewRequest>,
    pub tasks: Vec<NewTask>,
    pub worktimes: Vec<NewWorktime>,
    pub cerebro_articles: Vec<NewArticle>,
}

impl ImportRows for WorkspaceRows {
    fn check_values(&self, faults: &mut Faults) {
        check_list("requests", &self.requests, faults);
        check_list("tasks", &self.tasks, faults);
        check_list("worktimes", &self.worktimes, faults);
        check_list("cerebro_articles", &self.cerebro_articles, faults);
    }

    fn check_references(&self, known: &Known, faults: &mut Faults) {
        for (at, row) in self.requests.iter().enumerate() {
            known.user(row.requester_id, format!("/requests/{at}/requester_id"), faults);
            if let Some(id) = row.responsible_id {
                known.user(id, format!("/requests/{at}/responsible_id"), faults);
            }
            known.branch(row.branch_id, format!("/requests/{at}/branch_id"), faults);
        }
        for (at, row) in self.tasks.iter().enumerate() {
            known.user(row.user_id, format!("/tasks/{at}/user_id"), faults);
            known.branch(row.branch_id, format!("/tasks/{at}/branch_id"), faults);
        }
        for (at, row) in self.worktimes.iter().enumerate() {
            known.user(row.user_id, format!("/worktimes/{at}/user_id"), faults);
            known.branch(row.branch_id, format!("/worktimes/{at}/branch_id"), faults);
        }
        for (at, row) in self.cerebro_articles.iter().enumerate() {
            if let Some(id) = row.branch_id {
                known.branch(id, format!("/cerebro_articles/{at}/branch_id"), faults);
            }
        }
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("requests", self.requests.len()),
            ("tasks", self.tasks.len()),
            ("worktimes", self.worktimes.len()),
            ("cerebro_articles", self.cerebro_articles.len()),
        ]
    }

    fn write_sqlite(&self, c: &Connection, tenant_id: Uuid, now: Timestamp) -> Result<(), StoreError> {
        import_sqlite::write(c, tenant_id, self, now)
    }

    fn write_postgres<'a>(&'a self, transaction: &'a Transaction, tenant_id: Uuid, now: Timestamp) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(import_postgres::write(transaction, tenant_id, self, now))
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct NewRequest {
    pub id: i64,
    pub title: String,
    #[serde(default)]
    pub description: Option<String>,
    pub status: String,
    #[serde(default)]
    pub due_date: Option<Date>,
    pub requester_id: i64,
    #[serde(default)]
    pub responsible_id: Option<i64>,
    pub branch_id: i64,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct NewTask {
    pub id: i64,
    pub title: String,
    #[serde(default)]
    pub description: Option<String>,
    pub status: String,
    #[serde(default)]
    pub due_date: Option<Date>,
    pub user_id: i64,
    pub branch_id: i64,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct NewWorktime {
    pub id: i64,
    pub user_id: i64,
    pub branch_id: i64,
    pub started_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct NewArticle {
    pub id: i64,
    pub title: String,
    pub content: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub branch_id: Option<i64>,
}

/// Checks what requests and tasks have in common: title, status, due date and creation time.
fn check_work(row: (&str, &str, Option<Date>, Option<Timestamp>), known: &[&str], path: &str, faults: &mut Faults) {
    let (title, status, due_date, created_at) = row;
    filled(title, path, "title", faults);
    if !known.contains(&status) {
        faults.push(format!("{path}/status"), format!("there is no status \"{status}\"; take one of {}", known.join(", ")));
    }
    day(due_date, path, "due_date", faults);
    moment(created_at, path, "created_at", faults);
}

impl Checked for NewRequest {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        check_work((&self.title, &self.status, self.due_date, self.created_at), &REQUEST_STATUS, path, faults);
    }
}

impl Checked for NewTask {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        check_work((&self.title, &self.status, self.due_date, self.created_at), &TASK_STATUS, path, faults);
    }
}

impl Checked for NewWorktime {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        moment(Some(self.started_at), path, "started_at", faults);
        if self.ended_at.is_some_and(|end| end < self.started_at) {
            faults.push(format!("{path}/ended_at"), format!("lies before started_at ({})", self.started_at));
        }
    }
}

impl Checked for NewArticle {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        filled(&self.title, path, "title", faults);
        for (at, tag) in self.tags.iter().enumerate() {
            filled(tag, path, &format!("tags/{at}"), faults);
        }
    }
}

impl Row for NewRequest {
    fn read(f: &mut Fields<'_>, faults: &mut Faults) -> Option<Self> {
        let (id, title, description) = (f.need("id", faults), f.need("title", faults), f.may("description", faults));
        let (status, due_date) = (f.need("status", faults), f.may("due_date", faults));
        let (requester_id, responsible_id) = (f.need("requester_id", faults), f.may("responsible_id", faults));
        let (branch_id, created_at) = (f.need("branch_id", faults), f.may("created_at", faults));
        Some(Self {
            id: id?,
            title: title?,
            description: description?,
            status: status?,
            due_date: due_date?,
            requester_id: requester_id?,
            responsible_id: responsible_id?,
            branch_id: branch_id?,
            created_at: created_at?,
        })
    }
}

impl Row for NewTask {
    fn read(f: &mut Fields<'_>, faults: &mut Faults) -> Option<Self> {
        let (id, title, description) = (f.need("id", faults), f.need("title", faults), f.may("description", faults));
        let (status, due_date, user_id) = (f.need("status", faults), f.may("due_date", faults), f.need("user_id", faults));
        let (branch_id, created_at) = (f.need("branch_id", faults), f.may("created_at", faults));
        Some(Self {
            id: id?,
            title: title?,
            description: description?,
            status: status?,
            due_date: due_date?,
            user_id: user_id?,
            branch_id: branch_id?,
            created_at: created_at?,
        })
    }
}

impl Row for NewWorktime {
    fn read(f: &mut Fields<'_>, faults: &mut Faults) -> Option<Self> {
        let (id, user_id, branch_id) = (f.need("id", faults), f.need("user_id", faults), f.need("branch_id", faults));
        let (started_at, ended_at) = (f.need("started_at", faults), f.may("ended_at", faults));
        Some(Self { id: id?, user_id: user_id?, branch_id: branch_id?, started_at: started_at?, ended_at: ended_at? })
    }
}

impl Row for NewArticle {
    fn read(f: &mut Fields<'_>, faults: &mut Faults) -> Option<Self> {
        let (id, title, content) = (f.need("id", faults), f.need("title", faults), f.need("content", faults));
        let (tags, branch_id) = (f.list("tags", faults), f.may("branch_id", faults));
        Some(Self { id: id?, title: title?, content: content?, tags: tags?, branch_id: branch_id? })
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
