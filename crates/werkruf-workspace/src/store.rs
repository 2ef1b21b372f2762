//! The rows of the workspace: requests, tasks, working times, articles, people. They are always read through a [`RowScope`].

use jiff::Timestamp;
use jiff::civil::Date;
use werkruf_contract::{Scope, Uuid};
use werkruf_store::{Migration, ModuleSchema, ModuleTable, OnErase, PostgresSchema, StoreError, StoreFuture};

use crate::import::WorkspaceLists;

/// The module's part of the schema.
pub const SCHEMA: &ModuleSchema = &ModuleSchema {
    name: "workspace",
    tables: &[
        of_branch("requests", &["title", "description", "status", "due_date"]),
        of_branch("tasks", &["title", "description", "status", "due_date"]),
        of_branch("worktimes", &[]),
        of_branch("cerebro_articles", &["title", "content", "tags"]),
    ],
    import: Some(&WorkspaceLists),
    sqlite: &[Migration::first(include_str!("../migrations/sqlite/0001_first.sql"))],
    postgres: PostgresSchema::new(&[Migration::first(include_str!("../migrations/postgres/0001_first.sql"))]),
};

const fn of_branch(name: &'static str, columns: &'static [&'static str]) -> ModuleTable {
    let on_erase = OnErase::Keep { columns, why: "business data; the person in it is an anonymous row" };
    ModuleTable { branch: Some("branch_id"), ..ModuleTable::new(name, on_erase) }
}

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

/// The statements of a table in one dialect: for a user's rows and for a branch's rows.
pub(crate) struct Statements {
    pub(crate) by_person: &'static str,
    pub(crate) by_branch: &'static str,
}

impl Statements {
    pub(crate) const fn of(&self, bound: Bound) -> &'static str {
        if bound.person.is_some() { self.by_person } else { self.by_branch }
    }
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

impl<T> Listing<T> {
    pub(crate) const fn empty() -> Self {
        Self { rows: Vec::new(), truncated: false }
    }

    /// Removes the extra row that was read to find out whether there are more.
    pub(crate) fn cut(mut rows: Vec<T>, limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let truncated = rows.len() > limit;
        rows.truncate(limit);
        Self { rows, truncated }
    }
}

/// The column `due_date`.
pub(crate) fn date_or_null(text: Option<String>) -> Result<Option<Date>, StoreError> {
    let parse = |text: String| text.parse().map_err(|_| StoreError::Broken(format!("due_date {text} is no date")));
    text.map(parse).transpose()
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
}
