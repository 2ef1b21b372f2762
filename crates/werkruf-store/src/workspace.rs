//! The customer's own rows: requests, tasks, working times, articles, people. Read through a [`RowScope`], never around it.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Scope, Uuid};

use crate::{Branch, NewUser, RoleWithPermissions, StoreFuture};

/// Whose rows a query may touch. Built from the principal and the corridor's grant; the arguments only choose inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowScope {
    pub caller: i64,
    pub caller_branch: Option<i64>,
    pub grant: Scope,
    pub target: Target,
}

/// What the arguments ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The caller's own rows, whatever the grant.
    Own,
    /// One person's rows, inside the grant.
    User(i64),
    /// A branch's rows, inside the grant.
    Branch(i64),
}

/// What a reach comes down to in a WHERE: a person's rows, perhaps of one branch, or a branch's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) person: Option<i64>,
    pub(crate) branch: Option<i64>,
}

impl RowScope {
    /// `None` where the grant does not cover the target: no rows, whatever is stored.
    pub(crate) fn bound(&self) -> Option<Bound> {
        match (self.target, self.grant) {
            (Target::Own, _) => Some(Bound { person: Some(self.caller), branch: None }),
            // Naming oneself is no less than naming nobody.
            (Target::User(user), _) if user == self.caller => Some(Bound { person: Some(user), branch: None }),
            (Target::User(_) | Target::Branch(_), Scope::Own) => None,
            (Target::User(user), Scope::Branch) => Some(Bound { person: Some(user), branch: Some(self.caller_branch?) }),
            (Target::User(user), Scope::All) => Some(Bound { person: Some(user), branch: None }),
            (Target::Branch(branch), Scope::Branch) if self.caller_branch != Some(branch) => None,
            (Target::Branch(branch), Scope::Branch | Scope::All) => Some(Bound { person: None, branch: Some(branch) }),
        }
    }
}

/// From and to, both included; `None` is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DateSpan {
    pub from: Option<Date>,
    pub to: Option<Date>,
}

/// Which requests or tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkQuery {
    pub reach: RowScope,
    pub status: Option<String>,
    pub due: DateSpan,
    pub limit: u32,
}

/// Rows and whether there were more than the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    pub rows: Vec<T>,
    pub truncated: bool,
}

/// A request or a task, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkRow {
    pub id: i64,
    pub title: String,
    pub status: String,
    pub due_date: Option<Date>,
    /// "First Last": who asked (requests) or whose it is (tasks).
    pub requester: String,
    pub responsible: Option<String>,
}

/// Working times that overlap the span of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktimeQuery {
    pub reach: RowScope,
    /// From (included) and to (excluded).
    pub from: Timestamp,
    pub to: Timestamp,
    pub limit: u32,
}

/// One stretch of work, oldest first; without an end it is still running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktimeRow {
    pub id: i64,
    pub user_id: i64,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// Articles by words and tags. Articles without a branch are for every branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArticleQuery {
    pub reach: RowScope,
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

/// A request that a tool writes; it gets its number inside the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDraft {
    pub title: String,
    pub description: Option<String>,
    pub due_date: Option<Date>,
    pub requester_id: i64,
    pub responsible_id: Option<i64>,
    pub branch_id: Option<i64>,
}

/// A person as `get_user_info` shows one.
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

/// An import file, whole. A missing list changes nothing.
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

/// What is wrong with an import, by JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportFault {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub message: String,
}

/// The workspace's rows.
pub trait Workspace: Send + Sync {
    fn requests(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>>;
    fn tasks(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>>;
    fn worktimes(&self, tenant_id: Uuid, query: WorktimeQuery) -> StoreFuture<'_, Listing<WorktimeRow>>;
    fn articles(&self, tenant_id: Uuid, query: ArticleQuery) -> StoreFuture<'_, Listing<ArticleRow>>;
    /// A person the reach covers; `None` alike for one outside it and one that does not exist.
    fn person(&self, tenant_id: Uuid, reach: RowScope) -> StoreFuture<'_, Option<PersonRow>>;
    /// Writes an open request; `None` when nobody has the number of the one who is to be responsible.
    fn create_request(&self, tenant_id: Uuid, draft: RequestDraft, now: Timestamp) -> StoreFuture<'_, Option<WorkRow>>;
    /// One transaction: everything or, with faults, nothing. `new_tenant_id` is used when the tenant is new.
    fn import(&self, batch: WorkspaceBatch, new_tenant_id: Uuid, now: Timestamp)
    -> StoreFuture<'_, Result<ImportReport, Vec<ImportFault>>>;
}
