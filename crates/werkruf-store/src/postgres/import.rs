//! An import, in one transaction: checked first, so that a batch with faults writes nothing. Rows are sent as JSON, one statement per table.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::Uuid;

use super::fault::Fault;
use super::flush::{Statement, Transaction};
use super::param::{ms, ms_or_null, p};
use super::people_write::People;
use super::row::{all, first, only, tenant};
use super::text::{clean, clean_json};
use crate::workspace_check::{Faults, Stored, check_new_tenant, check_references};
use crate::{ImportFault, ImportReport, PeopleBatch, TenantRow, WorkspaceBatch, crash};

/// A batch and what its import needs.
pub(super) struct Import {
    pub(super) batch: WorkspaceBatch,
    /// Faults that the check of the values found.
    pub(super) faults: Faults,
    pub(super) new_tenant_id: Uuid,
    pub(super) now: Timestamp,
}

impl Import {
    /// Writes the batch unless it has faults. Starts in the system role, which can find the tenant, and continues as that tenant.
    pub(super) async fn run(&self, transaction: &Transaction) -> Result<Result<ImportReport, Vec<ImportFault>>, Fault> {
        let mut faults = self.faults.clone();
        let known = self.find_tenant(transaction).await?;
        if known.is_none() {
            check_new_tenant(&self.batch.tenant, &mut faults);
        }
        let stored = match &known {
            Some(tenant) => stored(transaction, tenant.id).await?,
            None => Stored::default(),
        };
        check_references(&self.batch, stored, &mut faults);
        if !faults.is_empty() {
            return Ok(Err(faults.into_list()));
        }
        let tenant_id = match known {
            Some(tenant) => tenant.id,
            None => self.make_tenant(transaction).await?,
        };
        let become_tenant = "SELECT set_config('role', 'werkruf_app', true), set_config('werkruf.tenant', $1::text, true)";
        transaction.query(become_tenant, &[p(&tenant_id)]).await?;
        self.write(transaction, tenant_id).await.map(Ok)
    }

    async fn find_tenant(&self, transaction: &Transaction) -> Result<Option<TenantRow>, Fault> {
        let (name, id) = (clean(&self.batch.tenant), Uuid::try_parse(&self.batch.tenant).ok());
        let rows = transaction.query("SELECT id, slug FROM tenants WHERE slug = $1 OR id = $2", &[p(&name), p(&id)]).await?;
        Ok(first(&rows, tenant)?)
    }

    async fn make_tenant(&self, transaction: &Transaction) -> Result<Uuid, Fault> {
        let (slug, now) = (clean(&self.batch.tenant), ms(self.now));
        let sql = "INSERT INTO tenants (id, slug, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        transaction.query(sql, &[p(&self.new_tenant_id), p(&slug), p(&now)]).await?;
        let rows = transaction.query("SELECT id, slug FROM tenants WHERE slug = $1", &[p(&slug)]).await?;
        Ok(only(&rows, tenant)?.id)
    }

    async fn write(&self, transaction: &Transaction, tenant_id: Uuid) -> Result<ImportReport, Fault> {
        let batch = &self.batch;
        let people = PeopleBatch { branches: batch.branches.clone(), roles: batch.roles.clone(), users: batch.users.clone() };
        let people = People::new(&people);
        let now = ms(self.now);
        let rows = self.rows();
        let external_ids = clean_json(&rows.external_ids);
        let tables = [&rows.requests, &rows.tasks, &rows.worktimes, &rows.articles].map(|rows| clean_json(rows));
        let external_ids = [p(&tenant_id), p(&external_ids)];
        let of_tables = tables.iter().map(|rows| [p(&tenant_id), p(rows), p(&now)]).collect::<Vec<_>>();
        let of_people = people.params(&tenant_id);
        let mut statements = vec![Statement { sql: CLEAR_EXTERNAL_IDS, params: &external_ids }];
        statements.extend(people.statements(&of_people));
        for (sql, params) in [REQUESTS, TASKS, WORKTIMES, ARTICLES].into_iter().zip(&of_tables) {
            // Tables without a creation time have no third parameter.
            let params = if sql.contains("$3") { &params[..] } else { &params[..2] };
            statements.push(Statement { sql, params });
        }
        transaction.run(&statements).await?;
        crash::point("inside_import");
        let counts = [
            ("branches", batch.branches.len()),
            ("roles", batch.roles.len()),
            ("users", batch.users.len()),
            ("requests", batch.requests.len()),
            ("tasks", batch.tasks.len()),
            ("worktimes", batch.worktimes.len()),
            ("cerebro_articles", batch.cerebro_articles.len()),
        ];
        let written = counts.into_iter().filter(|(_, count)| *count > 0).map(|(table, count)| (table.to_owned(), count as u64));
        Ok(ImportReport { tenant_id, written: written.collect::<BTreeMap<_, _>>() })
    }

    fn rows(&self) -> Rows {
        let batch = &self.batch;
        let text = |rows: &mut dyn Iterator<Item = Value>| Value::from_iter(rows).to_string();
        let external_ids = batch.users.iter().filter(|user| user.external_id.is_some());
        Rows {
            external_ids: text(&mut external_ids.map(|user| json!({"id": user.id, "external_id": user.external_id}))),
            requests: text(&mut batch.requests.iter().map(|row| {
                json!({"id": row.id, "title": row.title, "description": row.description, "status": row.status, "due_date": row.due_date,
                    "requester_id": row.requester_id, "responsible_id": row.responsible_id, "branch_id": row.branch_id,
                    "created_at": ms_or_null(row.created_at)})
            })),
            tasks: text(&mut batch.tasks.iter().map(|row| {
                json!({"id": row.id, "title": row.title, "description": row.description, "status": row.status, "due_date": row.due_date,
                    "user_id": row.user_id, "branch_id": row.branch_id, "created_at": ms_or_null(row.created_at)})
            })),
            worktimes: text(&mut batch.worktimes.iter().map(|row| {
                json!({"id": row.id, "user_id": row.user_id, "branch_id": row.branch_id, "started_at": ms(row.started_at),
                    "ended_at": ms_or_null(row.ended_at)})
            })),
            articles: text(&mut batch.cerebro_articles.iter().map(|row| {
                json!({"id": row.id, "title": row.title, "content": row.content, "tags": Value::from(row.tags.clone()).to_string(),
                    "branch_id": row.branch_id})
            })),
        }
    }
}

/// The batch as JSON texts.
struct Rows {
    external_ids: String,
    requests: String,
    tasks: String,
    worktimes: String,
    articles: String,
}

async fn stored(transaction: &Transaction, tenant_id: Uuid) -> Result<Stored, Fault> {
    let values = [p(&tenant_id)];
    let of = |sql| Statement { sql, params: &values };
    let found = transaction
        .run(&[
            of("SELECT id FROM branches WHERE tenant_id = $1"),
            of("SELECT id FROM roles WHERE tenant_id = $1"),
            of("SELECT id FROM users WHERE tenant_id = $1"),
            of("SELECT external_id, id FROM users WHERE tenant_id = $1 AND external_id IS NOT NULL"),
        ])
        .await?;
    let [branches, roles, users, external] = &found[..] else { return Ok(Stored::default()) };
    let ids = |rows| all(rows, |columns| columns.int()).map(HashSet::from_iter);
    let external_ids = all(external, |columns| Ok((columns.text()?, columns.int()?)))?;
    Ok(Stored { branches: ids(branches)?, roles: ids(roles)?, users: ids(users)?, external_ids: HashMap::from_iter(external_ids) })
}

/// Two users of the batch may exchange their external ids; the unique index would refuse the first of the two rows.
const CLEAR_EXTERNAL_IDS: &str = "UPDATE users SET external_id = NULL
    FROM json_to_recordset($2::json) AS given (id bigint, external_id text)
    WHERE users.tenant_id = $1 AND users.external_id = given.external_id AND users.id <> given.id";

// A row of the batch without a creation time keeps the stored one.
const REQUESTS: &str = "INSERT INTO requests (tenant_id, id, title, description, status, due_date, requester_id, responsible_id, branch_id,
      created_at)
    SELECT $1, id, title, description, status, due_date, requester_id, responsible_id, branch_id, coalesce(created_at,
      (SELECT stored.created_at FROM requests AS stored WHERE stored.tenant_id = $1 AND stored.id = given.id), $3)
    FROM json_to_recordset($2::json) AS given (id bigint, title text, description text, status text, due_date date, requester_id bigint,
      responsible_id bigint, branch_id bigint, created_at timestamptz)
    ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, description = excluded.description, status = excluded.status,
      due_date = excluded.due_date, requester_id = excluded.requester_id, responsible_id = excluded.responsible_id,
      branch_id = excluded.branch_id, created_at = excluded.created_at";

const TASKS: &str = "INSERT INTO tasks (tenant_id, id, title, description, status, due_date, user_id, branch_id, created_at)
    SELECT $1, id, title, description, status, due_date, user_id, branch_id, coalesce(created_at,
      (SELECT stored.created_at FROM tasks AS stored WHERE stored.tenant_id = $1 AND stored.id = given.id), $3)
    FROM json_to_recordset($2::json) AS given (id bigint, title text, description text, status text, due_date date, user_id bigint,
      branch_id bigint, created_at timestamptz)
    ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, description = excluded.description, status = excluded.status,
      due_date = excluded.due_date, user_id = excluded.user_id, branch_id = excluded.branch_id, created_at = excluded.created_at";

const WORKTIMES: &str = "INSERT INTO worktimes (tenant_id, id, user_id, branch_id, started_at, ended_at)
    SELECT $1, id, user_id, branch_id, started_at, ended_at
    FROM json_to_recordset($2::json) AS given (id bigint, user_id bigint, branch_id bigint, started_at timestamptz, ended_at timestamptz)
    ON CONFLICT (tenant_id, id) DO UPDATE SET user_id = excluded.user_id, branch_id = excluded.branch_id,
      started_at = excluded.started_at, ended_at = excluded.ended_at";

const ARTICLES: &str = "INSERT INTO cerebro_articles (tenant_id, id, title, content, tags, branch_id)
    SELECT $1, id, title, content, tags::json, branch_id
    FROM json_to_recordset($2::json) AS given (id bigint, title text, content text, tags text, branch_id bigint)
    ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, content = excluded.content, tags = excluded.tags,
      branch_id = excluded.branch_id";
