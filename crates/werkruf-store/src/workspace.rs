//! The rows of the workspace: requests, tasks, working times, articles, people. They are always read through a [`RowScope`].

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Scope, Uuid};

use crate::{Branch, NewUser, RoleWithPermissions, StoreFuture};

/// The rows that a query may read. Built from the principal and the scope that the call pipeline granted; the arguments of the call
/// only choose within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowScope {
    pub caller: i64,
    pub caller_branch: Option<i64>,
    pub grant: Scope,
    pub target: Target,
}

/// The rows that the arguments of the call select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The caller's own rows, whatever the grant.
    Own,
    /// One user's rows, within the grant.
    User(i64),
    /// A branch's rows, within the grant.
    Branch(i64),
}

/// A row scope as conditions of a WHERE clause: a user's rows, perhaps of one branch, or a branch's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) person: Option<i64>,
    pub(crate) branch: Option<i64>,
}

impl RowScope {
    /// `None` where the grant does not cover the target; the query then has no rows.
    pub(crate) fn bound(&self) -> Option<Bound> {
        match (self.target, self.grant) {
            (Target::Own, _) => Some(Bound { person: Some(self.caller), branch: None }),
            // A caller who names their own id gets the same rows as without naming anyone.
            (Target::User(user), _) if user == self.caller => Some(Bound { person: Some(user), branch: None }),
            (Target::User(_) | Target::Branch(_), Scope::Own) => None,
            (Target::User(user), Scope::Branch) => Some(Bound { person: Some(user), branch: Some(self.caller_branch?) }),
            (Target::User(user), Scope::All) => Some(Bound { person: Some(user), branch: None }),
            (Target::Branch(branch), Scope::Branch) if self.caller_branch != Some(branch) => None,
            (Target::Branch(branch), Scope::Branch | Scope::All) => Some(Bound { person: None, branch: Some(branch) }),
        }
    }
}

/// A span of days, both ends included; `None` is unbounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DateSpan {
    pub from: Option<Date>,
    pub to: Option<Date>,
}

/// Which requests or tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkQuery {
    pub row_scope: RowScope,
    pub status: Option<String>,
    pub due: DateSpan,
    pub limit: u32,
}

/// Rows, and whether there were more than the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    pub rows: Vec<T>,
    pub truncated: bool,
}

/// A request or a task. Lists are newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkRow {
    pub id: i64,
    pub title: String,
    pub status: String,
    pub due_date: Option<Date>,
    /// "First Last": the requester of a request, the user of a task.
    pub requester: String,
    pub responsible: Option<String>,
}

/// Working times that overlap the span of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktimeQuery {
    pub row_scope: RowScope,
    /// From (included) and to (excluded).
    pub from: Timestamp,
    pub to: Timestamp,
    pub limit: u32,
}

/// One working time; without an end it is still running. Lists are oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktimeRow {
    pub id: i64,
    pub user_id: i64,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// Articles by words and tags. An article without a branch is visible in every branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArticleQuery {
    pub row_scope: RowScope,
    pub search: Option<String>,
    pub tags: Vec<String>,
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArticleRow {
    pub id: i64,
    pub title: String,
    pub content: String,
    pub tags: Vec<String>,
}

/// A request that a tool creates; it gets its id inside the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDraft {
    pub title: String,
    pub description: Option<String>,
    pub due_date: Option<Date>,
    pub requester_id: i64,
    pub responsible_id: Option<i64>,
    pub branch_id: Option<i64>,
}

/// A person as `get_user_info` returns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRow {
    pub id: i64,
    pub first_name: String,
    pub last_name: String,
    pub email: Option<String>,
    pub branch_id: Option<i64>,
    pub branch: Option<String>,
    pub roles: Vec<String>,
}

/// The content of an import file. A missing list changes nothing.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct WorkspaceBatch {
    pub tenant: String,
    #[serde(default)]
    pub branches: Vec<Branch>,
    #[serde(default)]
    pub roles: Vec<RoleWithPermissions>,
    #[serde(default)]
    pub users: Vec<NewUser>,
    #[serde(default)]
    pub requests: Vec<NewRequest>,
    #[serde(default)]
    pub tasks: Vec<NewTask>,
    #[serde(default)]
    pub worktimes: Vec<NewWorktime>,
    #[serde(default)]
    pub cerebro_articles: Vec<NewArticle>,
}

impl WorkspaceBatch {
    /// Whether it has rows that belong to the workspace module. Branches, roles and users do not.
    pub fn has_work(&self) -> bool {
        !(self.requests.is_empty() && self.tasks.is_empty() && self.worktimes.is_empty() && self.cerebro_articles.is_empty())
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

/// What an import wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    pub tenant_id: Uuid,
    /// Rows by table.
    pub written: std::collections::BTreeMap<String, u64>,
}

/// A fault in an import file, by JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportFault {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub message: String,
}

/// Reads and writes the workspace's rows.
pub trait Workspace: Send + Sync {
    fn requests(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>>;
    fn tasks(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>>;
    fn worktimes(&self, tenant_id: Uuid, query: WorktimeQuery) -> StoreFuture<'_, Listing<WorktimeRow>>;
    fn articles(&self, tenant_id: Uuid, query: ArticleQuery) -> StoreFuture<'_, Listing<ArticleRow>>;
    /// A person within the row scope; `None` both for a person outside it and for one that does not exist.
    fn person(&self, tenant_id: Uuid, row_scope: RowScope) -> StoreFuture<'_, Option<PersonRow>>;
    /// Creates an open request; `None` when no user has the id in `responsible_id`.
    fn create_request(&self, tenant_id: Uuid, draft: RequestDraft, now: Timestamp) -> StoreFuture<'_, Option<WorkRow>>;
    /// Writes all rows in one transaction, or none when there are faults. `new_tenant_id` is used when the tenant is new.
    fn import(&self, batch: WorkspaceBatch, new_tenant_id: Uuid, now: Timestamp)
    -> StoreFuture<'_, Result<ImportReport, Vec<ImportFault>>>;
}
