//! Writes the rows of an import file on SQLite, inside the transaction of the import.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;
use werkruf_store::StoreError;
use werkruf_store::sqlite::{Id, Stamp, stamp_or_null};

use crate::import::{NewArticle, NewRequest, NewTask, NewWorktime, WorkspaceRows};

pub(crate) fn write(c: &Connection, tenant_id: Uuid, rows: &WorkspaceRows, now: Timestamp) -> Result<(), StoreError> {
    let (tenant, created) = (Id::from(tenant_id), Stamp::from(now));
    rows.requests.iter().try_for_each(|row| put_request(c, &tenant, row, &created))?;
    rows.tasks.iter().try_for_each(|row| put_task(c, &tenant, row, &created))?;
    rows.worktimes.iter().try_for_each(|row| put_worktime(c, &tenant, row))?;
    rows.cerebro_articles.iter().try_for_each(|row| put_article(c, &tenant, row))
}

fn one(changed: usize, what: &'static str, id: i64) -> Result<(), StoreError> {
    if changed == 1 { Ok(()) } else { Err(StoreError::Moved { what, id: id.to_string() }) }
}

fn put_request(c: &Connection, tenant: &Id, row: &NewRequest, now: &Stamp) -> Result<(), StoreError> {
    // A row without a time keeps the time of its first import.
    let changed = c
        .prepare_cached(
            "INSERT INTO requests (tenant_id, id, title, description, status, due_date, requester_id, responsible_id, branch_id, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(?10, ?11))
             ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, description = excluded.description,
               status = excluded.status, due_date = excluded.due_date, requester_id = excluded.requester_id,
               responsible_id = excluded.responsible_id, branch_id = excluded.branch_id,
               created_at = coalesce(?10, requests.created_at, ?11)",
        )?
        .execute(params![
            tenant,
            row.id,
            row.title,
            row.description,
            row.status,
            row.due_date.map(|date| date.to_string()),
            row.requester_id,
            row.responsible_id,
            row.branch_id,
            stamp_or_null(row.created_at),
            now,
        ])?;
    one(changed, "request", row.id)
}

fn put_task(c: &Connection, tenant: &Id, row: &NewTask, now: &Stamp) -> Result<(), StoreError> {
    let changed = c
        .prepare_cached(
            "INSERT INTO tasks (tenant_id, id, title, description, status, due_date, user_id, branch_id, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, coalesce(?9, ?10))
             ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, description = excluded.description,
               status = excluded.status, due_date = excluded.due_date, user_id = excluded.user_id, branch_id = excluded.branch_id,
               created_at = coalesce(?9, tasks.created_at, ?10)",
        )?
        .execute(params![
            tenant,
            row.id,
            row.title,
            row.description,
            row.status,
            row.due_date.map(|date| date.to_string()),
            row.user_id,
            row.branch_id,
            stamp_or_null(row.created_at),
            now,
        ])?;
    one(changed, "task", row.id)
}

fn put_worktime(c: &Connection, tenant: &Id, row: &NewWorktime) -> Result<(), StoreError> {
    let changed = c
        .prepare_cached(
            "INSERT INTO worktimes (tenant_id, id, user_id, branch_id, started_at, ended_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (tenant_id, id) DO UPDATE SET user_id = excluded.user_id, branch_id = excluded.branch_id,
               started_at = excluded.started_at, ended_at = excluded.ended_at",
        )?
        .execute(params![tenant, row.id, row.user_id, row.branch_id, Stamp::from(row.started_at), stamp_or_null(row.ended_at)])?;
    one(changed, "worktime", row.id)
}

fn put_article(c: &Connection, tenant: &Id, row: &NewArticle) -> Result<(), StoreError> {
    let tags = serde_json::Value::from(row.tags.clone()).to_string();
    let changed = c
        .prepare_cached(
            "INSERT INTO cerebro_articles (tenant_id, id, title, content, tags, branch_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, content = excluded.content, tags = excluded.tags,
               branch_id = excluded.branch_id",
        )?
        .execute(params![tenant, row.id, row.title, row.content, tags, row.branch_id])?;
    one(changed, "article", row.id)
}
