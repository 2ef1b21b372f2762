//! Writes the rows of an import file on PostgreSQL, inside the transaction of the import: as JSON, one statement per table.

use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::Uuid;
use werkruf_store::postgres::{Fault, Statement, Transaction, clean_json, ms, ms_or_null, p};

use crate::import::WorkspaceRows;

pub(crate) async fn write(transaction: &Transaction, tenant_id: Uuid, rows: &WorkspaceRows, now: Timestamp) -> Result<(), Fault> {
    let texts = texts(rows);
    let texts = texts.each_ref().map(|rows| clean_json(rows));
    let values = texts.each_ref().map(|rows| [p(&tenant_id), p(rows), p(&now)]);
    let statements = [REQUESTS, TASKS, WORKTIMES, ARTICLES].into_iter().zip(&values).map(|(sql, params)| {
        // Tables without a creation time have no third parameter.
        Statement { sql, params: if sql.contains("$3") { &params[..] } else { &params[..2] } }
    });
    transaction.run(&statements.collect::<Vec<_>>()).await?;
    Ok(())
}

/// The rows of each table as a JSON array.
fn texts(rows: &WorkspaceRows) -> [String; 4] {
    let requests = rows.requests.iter().map(|row| {
        json!({"id": row.id, "title": row.title, "description": row.description, "status": row.status, "due_date": row.due_date,
            "requester_id": row.requester_id, "responsible_id": row.responsible_id, "branch_id": row.branch_id,
            "created_at": ms_or_null(row.created_at)})
    });
    let tasks = rows.tasks.iter().map(|row| {
        json!({"id": row.id, "title": row.title, "description": row.description, "status": row.status, "due_date": row.due_date,
            "user_id": row.user_id, "branch_id": row.branch_id, "created_at": ms_or_null(row.created_at)})
    });
    let worktimes = rows.worktimes.iter().map(|row| {
        json!({"id": row.id, "user_id": row.user_id, "branch_id": row.branch_id, "started_at": ms(row.started_at),
            "ended_at": ms_or_null(row.ended_at)})
    });
    let articles = rows.cerebro_articles.iter().map(|row| {
        json!({"id": row.id, "title": row.title, "content": row.content, "tags": Value::from(row.tags.clone()).to_string(),
            "branch_id": row.branch_id})
    });
    [Value::from_iter(requests), Value::from_iter(tasks), Value::from_iter(worktimes), Value::from_iter(articles)]
        .map(|rows| rows.to_string())
}

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
