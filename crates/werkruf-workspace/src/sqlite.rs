//! [`Workspace`] on SQLite. The WHERE clause of every statement restricts the rows to the [`RowScope`].

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, params};
use werkruf_contract::{Scope, Uuid};
use werkruf_store::sqlite::{Columns, Id, Stamp, all, first};
use werkruf_store::{SqliteStore, StoreError, StoreFuture};

use crate::article_match::{MOST_ARTICLES, Ranking, Wanted};
use crate::store::{
    ArticleQuery, ArticleRow, Bound, Listing, PersonRow, RequestDraft, RowScope, Statements, WorkQuery, WorkRow, Workspace, WorktimeQuery,
    WorktimeRow,
};

crate::reading::readings!();

impl Workspace for SqliteStore {
    fn requests(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>> {
        Box::pin(self.read_rows(move |c| work(c, &REQUESTS, tenant_id, &query)))
    }

    fn tasks(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>> {
        Box::pin(self.read_rows(move |c| work(c, &TASKS, tenant_id, &query)))
    }

    fn worktimes(&self, tenant_id: Uuid, query: WorktimeQuery) -> StoreFuture<'_, Listing<WorktimeRow>> {
        Box::pin(self.read_rows(move |c| worktimes(c, tenant_id, &query)))
    }

    fn articles(&self, tenant_id: Uuid, query: ArticleQuery) -> StoreFuture<'_, Listing<ArticleRow>> {
        Box::pin(self.read_rows(move |c| articles(c, tenant_id, &query)))
    }

    fn person(&self, tenant_id: Uuid, row_scope: RowScope) -> StoreFuture<'_, Option<PersonRow>> {
        Box::pin(self.look_up(move |c| person(c, tenant_id, &row_scope, self.clock().now())))
    }

    fn create_request(&self, tenant_id: Uuid, draft: RequestDraft, now: Timestamp) -> StoreFuture<'_, Option<WorkRow>> {
        Box::pin(self.write_rows(move |c| create_request(c, &Id::from(tenant_id), &draft, now)))
    }
}

macro_rules! requests {
    ($row_scope:literal) => {
        concat!(
            "SELECT q.id, q.title, q.status, q.due_date,
               coalesce(trim(asker.first_name || ' ' || asker.last_name), '#' || q.requester_id),
               coalesce(trim(doer.first_name || ' ' || doer.last_name), '#' || q.responsible_id)
             FROM requests AS q
               LEFT JOIN users AS asker ON asker.tenant_id = q.tenant_id AND asker.id = q.requester_id
               LEFT JOIN users AS doer ON doer.tenant_id = q.tenant_id AND doer.id = q.responsible_id
             WHERE q.tenant_id = ?1 AND ",
            $row_scope,
            " AND (?4 IS NULL OR q.status = ?4) AND (?5 IS NULL OR q.due_date >= ?5) AND (?6 IS NULL OR q.due_date <= ?6)
             ORDER BY q.created_at DESC, q.id DESC LIMIT ?7"
        )
    };
}

const REQUEST: &str = requests!("q.id = ?2 AND ?3 IS NULL");

const REQUESTS: Statements = Statements {
    by_person: requests!("(q.requester_id = ?2 OR q.responsible_id = ?2) AND (?3 IS NULL OR q.branch_id = ?3)"),
    by_branch: requests!("q.branch_id = ?3"),
};

fn create_request(c: &Connection, tenant: &Id, draft: &RequestDraft, now: Timestamp) -> Result<Option<WorkRow>, StoreError> {
    let mut known = c.prepare_cached("SELECT EXISTS (SELECT 1 FROM users WHERE tenant_id = ?1 AND id = ?2)")?;
    if let Some(responsible) = draft.responsible_id
        && first(&mut known, params![tenant, responsible], |columns| columns.flag())? != Some(true)
    {
        return Ok(None);
    }
    let mut insert = c.prepare_cached(
        "INSERT INTO requests (tenant_id, id, title, description, status, due_date, requester_id, responsible_id, branch_id, created_at)
         VALUES (?1, (SELECT coalesce(max(id), 0) + 1 FROM requests WHERE tenant_id = ?1), ?2, ?3, 'open', ?4, ?5, ?6, ?7, ?8)
         RETURNING id",
    )?;
    let values = params![
        tenant,
        draft.title,
        draft.description,
        draft.due_date.map(|date| date.to_string()),
        draft.requester_id,
        draft.responsible_id,
        draft.branch_id,
        Stamp::from(now),
    ];
    let id =
        first(&mut insert, values, |columns| columns.int())?.ok_or_else(|| StoreError::Broken("a request was not written".to_owned()))?;
    let nothing: Option<&str> = None;
    let mut written = c.prepare_cached(REQUEST)?;
    first(&mut written, params![tenant, id, nothing, nothing, nothing, nothing, 1], work_row)
}

macro_rules! tasks {
    ($row_scope:literal) => {
        concat!(
            "SELECT q.id, q.title, q.status, q.due_date,
               coalesce(trim(holder.first_name || ' ' || holder.last_name), '#' || q.user_id), NULL
             FROM tasks AS q LEFT JOIN users AS holder ON holder.tenant_id = q.tenant_id AND holder.id = q.user_id
             WHERE q.tenant_id = ?1 AND ",
            $row_scope,
            " AND (?4 IS NULL OR q.status = ?4) AND (?5 IS NULL OR q.due_date >= ?5) AND (?6 IS NULL OR q.due_date <= ?6)
             ORDER BY q.created_at DESC, q.id DESC LIMIT ?7"
        )
    };
}

const TASKS: Statements =
    Statements { by_person: tasks!("q.user_id = ?2 AND (?3 IS NULL OR q.branch_id = ?3)"), by_branch: tasks!("q.branch_id = ?3") };

macro_rules! worktimes {
    ($row_scope:literal) => {
        concat!(
            "SELECT id, user_id, started_at, ended_at FROM worktimes WHERE tenant_id = ?1 AND ",
            $row_scope,
            " AND started_at < ?5 AND (ended_at IS NULL OR ended_at > ?4) ORDER BY started_at, id LIMIT ?6"
        )
    };
}

const WORKTIMES: Statements =
    Statements { by_person: worktimes!("user_id = ?2 AND (?3 IS NULL OR branch_id = ?3)"), by_branch: worktimes!("branch_id = ?3") };

const ARTICLES: &str = "SELECT id, title, content, tags FROM cerebro_articles
     WHERE tenant_id = ?1 AND (?2 OR branch_id IS NULL OR branch_id = ?3) ORDER BY id LIMIT ?4";

const PERSON: &str = "SELECT users.id, users.first_name, users.last_name, users.email, users.branch_id, branches.name
     FROM users LEFT JOIN branches ON branches.tenant_id = users.tenant_id AND branches.id = users.branch_id
     WHERE users.tenant_id = ?1 AND users.id = ?2 AND (?3 IS NULL OR users.branch_id = ?3)";

const ROLES: &str = "SELECT roles.name FROM held_roles
       JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
     WHERE held_roles.tenant_id = ?1 AND held_roles.user_id = ?2 AND since <= ?3 AND ?3 < until ORDER BY roles.id";

/// All statements that a tool may run, for the test of the query plans.
#[cfg(test)]
fn statements() -> Vec<&'static str> {
    let tables = [REQUESTS, TASKS, WORKTIMES];
    tables.iter().flat_map(|table| [table.by_person, table.by_branch]).chain([ARTICLES, PERSON, ROLES]).collect()
}

fn work(c: &Connection, table: &Statements, tenant_id: Uuid, query: &WorkQuery) -> Result<Listing<WorkRow>, StoreError> {
    let Some(bound) = query.row_scope.bound() else { return Ok(Listing::empty()) };
    let day = |date: Option<Date>| date.map(|date| date.to_string());
    let mut statement = c.prepare_cached(table.of(bound))?;
    let rows = all(
        &mut statement,
        params![
            Id::from(tenant_id),
            bound.person,
            bound.branch,
            query.status,
            day(query.due.from),
            day(query.due.to),
            i64::from(query.limit) + 1
        ],
        work_row,
    )?;
    Ok(Listing::cut(rows, query.limit))
}

fn worktimes(c: &Connection, tenant_id: Uuid, query: &WorktimeQuery) -> Result<Listing<WorktimeRow>, StoreError> {
    let Some(bound) = query.row_scope.bound() else { return Ok(Listing::empty()) };
    let mut statement = c.prepare_cached(WORKTIMES.of(bound))?;
    let rows = all(
        &mut statement,
        params![
            Id::from(tenant_id),
            bound.person,
            bound.branch,
            Stamp::from(query.from),
            Stamp::from(query.to),
            i64::from(query.limit) + 1
        ],
        worktime_row,
    )?;
    Ok(Listing::cut(rows, query.limit))
}

fn articles(c: &Connection, tenant_id: Uuid, query: &ArticleQuery) -> Result<Listing<ArticleRow>, StoreError> {
    let wanted = Wanted::new(query.search.as_deref(), &query.tags);
    let mut ranking = Ranking::new(query.limit);
    let mut statement = c.prepare_cached(ARTICLES)?;
    let every_branch = query.row_scope.grant == Scope::All;
    let mut rows = statement.query(params![Id::from(tenant_id), every_branch, query.row_scope.caller_branch, MOST_ARTICLES + 1])?;
    let mut scanned = 0;
    while let Some(row) = rows.next()? {
        scanned += 1;
        if scanned > MOST_ARTICLES {
            break;
        }
        let article = article_row(&mut Columns::new(row))?;
        if let Some(matches) = wanted.matches(&article) {
            ranking.add(matches, article);
        }
    }
    let mut found = ranking.into_listing();
    found.truncated |= scanned > MOST_ARTICLES;
    Ok(found)
}

fn person(c: &Connection, tenant_id: Uuid, row_scope: &RowScope, now: Timestamp) -> Result<Option<PersonRow>, StoreError> {
    let Some(Bound { person: Some(id), branch }) = row_scope.bound() else { return Ok(None) };
    let tenant = Id::from(tenant_id);
    let snapshot = c.unchecked_transaction()?;
    let found = first(&mut *snapshot.prepare_cached(PERSON)?, params![tenant, id, branch], person_row)?;
    let Some(mut person) = found else { return Ok(None) };
    person.roles = all(&mut *snapshot.prepare_cached(ROLES)?, params![tenant, id, Stamp::from(now)], |columns| columns.text())?;
    Ok(Some(person))
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;
