//! [`Workspace`] on PostgreSQL. The WHERE of every statement limits the rows to the [`RowScope`].

use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use werkruf_contract::{Scope, Uuid};
use werkruf_store::postgres::{Columns, DbRole, Fault, Transaction, all, clean, clean_or_null, first, ms, p};
use werkruf_store::{PostgresStore, StoreError, StoreFuture};

use crate::article_match::{MOST_ARTICLES, Ranking, Wanted};
use crate::store::{
    ArticleQuery, ArticleRow, Bound, Listing, PersonRow, RequestDraft, RowScope, Statements, WorkQuery, WorkRow, Workspace, WorktimeQuery,
    WorktimeRow,
};

crate::reading::readings!();

/// Two processes may choose the same new number; the later one tries the next.
const MAX_ATTEMPTS: usize = 100;

impl Workspace for PostgresStore {
    fn requests(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>> {
        Box::pin(work(self, &REQUESTS, tenant_id, query))
    }

    fn tasks(&self, tenant_id: Uuid, query: WorkQuery) -> StoreFuture<'_, Listing<WorkRow>> {
        Box::pin(work(self, &TASKS, tenant_id, query))
    }

    fn worktimes(&self, tenant_id: Uuid, query: WorktimeQuery) -> StoreFuture<'_, Listing<WorktimeRow>> {
        Box::pin(async move {
            let Some(bound) = query.row_scope.bound() else { return Ok(Listing::empty()) };
            let limit = i64::from(query.limit) + 1;
            let values = [p(&tenant_id), p(&bound.person), p(&bound.branch), p(&query.from), p(&query.to), p(&limit)];
            let rows = self.query(DbRole::Tenant(tenant_id), WORKTIMES.of(bound), &values).await?;
            Ok(Listing::cut(all(&rows, worktime_row)?, query.limit))
        })
    }

    fn articles(&self, tenant_id: Uuid, query: ArticleQuery) -> StoreFuture<'_, Listing<ArticleRow>> {
        Box::pin(find_articles(self, tenant_id, query))
    }

    fn person(&self, tenant_id: Uuid, scope: RowScope) -> StoreFuture<'_, Option<PersonRow>> {
        Box::pin(async move {
            let Some(Bound { person: Some(id), branch }) = scope.bound() else { return Ok(None) };
            let now = ms(self.clock().now());
            let rows = self.query(DbRole::Tenant(tenant_id), PERSON, &[p(&tenant_id), p(&id), p(&branch), p(&now)]).await?;
            first(&rows, |columns| {
                let person = person_row(columns)?;
                Ok(PersonRow { roles: columns.parsed(|text| serde_json::from_str(text).ok())?, ..person })
            })
        })
    }

    fn create_request(&self, tenant_id: Uuid, draft: RequestDraft, now: Timestamp) -> StoreFuture<'_, Option<WorkRow>> {
        Box::pin(async move {
            let draft = Arc::new(draft);
            self.with(DbRole::Tenant(tenant_id), move |transaction| {
                let draft = Arc::clone(&draft);
                Box::pin(async move { create_request(transaction, tenant_id, &draft, now).await })
            })
            .await
        })
    }
}

// Every statement takes every parameter, also where its scope needs fewer: `$2` and `$3` always have their type.
macro_rules! requests {
    ($row_scope:literal) => {
        concat!(
            "SELECT q.id, q.title, q.status, q.due_date::text,
               coalesce(trim(asker.first_name || ' ' || asker.last_name), '#' || q.requester_id),
               coalesce(trim(doer.first_name || ' ' || doer.last_name), '#' || q.responsible_id)
             FROM requests AS q
               LEFT JOIN users AS asker ON asker.tenant_id = q.tenant_id AND asker.id = q.requester_id
               LEFT JOIN users AS doer ON doer.tenant_id = q.tenant_id AND doer.id = q.responsible_id
             WHERE q.tenant_id = $1 AND ",
            $row_scope,
            " AND ($4 IS NULL OR q.status = $4) AND ($5 IS NULL OR q.due_date >= $5) AND ($6 IS NULL OR q.due_date <= $6)
             ORDER BY q.created_at DESC NULLS LAST, q.id DESC LIMIT $7"
        )
    };
}

const REQUEST: &str = requests!("q.id = $2 AND $3 IS NULL");

const REQUESTS: Statements = Statements {
    by_person: requests!("(q.requester_id = $2 OR q.responsible_id = $2) AND ($3 IS NULL OR q.branch_id = $3)"),
    by_branch: requests!("q.branch_id = $3 AND $2 IS NULL"),
};

macro_rules! tasks {
    ($row_scope:literal) => {
        concat!(
            "SELECT q.id, q.title, q.status, q.due_date::text,
               coalesce(trim(holder.first_name || ' ' || holder.last_name), '#' || q.user_id), NULL::text
             FROM tasks AS q LEFT JOIN users AS holder ON holder.tenant_id = q.tenant_id AND holder.id = q.user_id
             WHERE q.tenant_id = $1 AND ",
            $row_scope,
            " AND ($4 IS NULL OR q.status = $4) AND ($5 IS NULL OR q.due_date >= $5) AND ($6 IS NULL OR q.due_date <= $6)
             ORDER BY q.created_at DESC NULLS LAST, q.id DESC LIMIT $7"
        )
    };
}

const TASKS: Statements = Statements {
    by_person: tasks!("q.user_id = $2 AND ($3 IS NULL OR q.branch_id = $3)"),
    by_branch: tasks!("q.branch_id = $3 AND $2 IS NULL"),
};

macro_rules! worktimes {
    ($row_scope:literal) => {
        concat!(
            "SELECT id, user_id, started_at, ended_at FROM worktimes WHERE tenant_id = $1 AND ",
            $row_scope,
            " AND started_at < $5 AND (ended_at IS NULL OR ended_at > $4) ORDER BY started_at, id LIMIT $6"
        )
    };
}

const WORKTIMES: Statements = Statements {
    by_person: worktimes!("user_id = $2 AND ($3 IS NULL OR branch_id = $3)"),
    by_branch: worktimes!("branch_id = $3 AND $2 IS NULL"),
};

const ARTICLES: &str = "SELECT id, title, content, tags FROM cerebro_articles
     WHERE tenant_id = $1 AND ($2 OR branch_id IS NULL OR branch_id = $3) ORDER BY id LIMIT $4";

const PERSON: &str = "SELECT users.id, users.first_name, users.last_name, users.email, users.branch_id, branches.name,
       coalesce((SELECT json_agg(roles.name ORDER BY roles.id) FROM held_roles
         JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
         WHERE held_roles.tenant_id = $1 AND held_roles.user_id = $2 AND since <= $4 AND $4 < until), '[]')
     FROM users LEFT JOIN branches ON branches.tenant_id = users.tenant_id AND branches.id = users.branch_id
     WHERE users.tenant_id = $1 AND users.id = $2 AND ($3 IS NULL OR users.branch_id = $3)";

async fn create_request(
    transaction: &Transaction,
    tenant_id: Uuid,
    draft: &RequestDraft,
    now: Timestamp,
) -> Result<Option<WorkRow>, Fault> {
    if let Some(responsible) = draft.responsible_id {
        let known = transaction.query("SELECT id FROM users WHERE tenant_id = $1 AND id = $2", &[p(&tenant_id), p(&responsible)]).await?;
        if known.is_empty() {
            return Ok(None);
        }
    }
    let (title, description, now) = (clean(&draft.title), clean_or_null(draft.description.as_deref()), ms(now));
    let (no_branch, no_status, no_day): (Option<i64>, Option<&str>, Option<Date>) = (None, None, None);
    for _ in 0..MAX_ATTEMPTS {
        let sql = "INSERT INTO requests (tenant_id, id, title, description, status, due_date, requester_id, responsible_id, branch_id,
                     created_at)
                   VALUES ($1, (SELECT coalesce(max(id), 0) + 1 FROM requests WHERE tenant_id = $1), $2, $3, 'open', $4, $5, $6, $7, $8)
                   ON CONFLICT (tenant_id, id) DO NOTHING RETURNING id";
        let values = [
            p(&tenant_id),
            p(&title),
            p(&description),
            p(&draft.due_date),
            p(&draft.requester_id),
            p(&draft.responsible_id),
            p(&draft.branch_id),
            p(&now),
        ];
        let created = transaction.query(sql, &values).await?;
        if let Some(id) = first(&created, |columns| columns.int())? {
            let values = [p(&tenant_id), p(&id), p(&no_branch), p(&no_status), p(&no_day), p(&no_day), p(&1_i64)];
            return Ok(first(&transaction.query(REQUEST, &values).await?, work_row)?);
        }
    }
    Err(StoreError::Unavailable("other processes took every new request number".to_owned()).into())
}

async fn work(store: &PostgresStore, table: &Statements, tenant_id: Uuid, query: WorkQuery) -> Result<Listing<WorkRow>, StoreError> {
    let Some(bound) = query.row_scope.bound() else { return Ok(Listing::empty()) };
    let (status, limit) = (clean_or_null(query.status.as_deref()), i64::from(query.limit) + 1);
    let (from, to) = (query.due.from, query.due.to);
    let values = [p(&tenant_id), p(&bound.person), p(&bound.branch), p(&status), p(&from), p(&to), p(&limit)];
    let rows = store.query(DbRole::Tenant(tenant_id), table.of(bound), &values).await?;
    Ok(Listing::cut(all(&rows, work_row)?, query.limit))
}

async fn find_articles(store: &PostgresStore, tenant_id: Uuid, query: ArticleQuery) -> Result<Listing<ArticleRow>, StoreError> {
    let (every_branch, limit) = (query.row_scope.grant == Scope::All, i64::from(MOST_ARTICLES) + 1);
    let values = [p(&tenant_id), p(&every_branch), p(&query.row_scope.caller_branch), p(&limit)];
    let rows = store.query(DbRole::Tenant(tenant_id), ARTICLES, &values).await?;
    // Ranking thousands of texts takes a while: not on a thread that serves requests.
    let ranking = tokio::task::spawn_blocking(move || rank(&rows, &query));
    ranking.await.map_err(|error| StoreError::Broken(format!("a search did not end: {error}")))?
}

fn rank(rows: &[tokio_postgres::Row], query: &ArticleQuery) -> Result<Listing<ArticleRow>, StoreError> {
    let wanted = Wanted::new(query.search.as_deref(), &query.tags);
    let mut ranking = Ranking::new(query.limit);
    let most = usize::try_from(MOST_ARTICLES).unwrap_or(usize::MAX);
    for row in rows.iter().take(most) {
        let article = article_row(&mut Columns::new(row))?;
        if let Some(matches) = wanted.matches(&article) {
            ranking.add(matches, article);
        }
    }
    let mut found = ranking.into_listing();
    found.truncated |= rows.len() > most;
    Ok(found)
}
