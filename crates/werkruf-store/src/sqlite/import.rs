//! The workspace import, inside the writer's transaction. The batch is checked first, so that a batch with faults writes nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::people_write as people;
use super::row::{all, first, tenant};
use super::text::{Id, Stamp, stamp_or_null};
use crate::workspace_check::{Faults, Stored, check_new_tenant, check_references};
use crate::{
    ImportFault, ImportReport, NewArticle, NewRequest, NewTask, NewWorktime, PeopleBatch, StoreError, TenantRow, WorkspaceBatch, crash,
};

/// Writes the batch unless the check of its values, which ran before, or the check of its references found faults.
pub(super) fn import(
    c: &Connection,
    batch: WorkspaceBatch,
    mut faults: Faults,
    new_tenant_id: Uuid,
    now: Timestamp,
) -> Result<Result<ImportReport, Vec<ImportFault>>, StoreError> {
    let known = find_tenant(c, &batch.tenant)?;
    if known.is_none() {
        check_new_tenant(&batch.tenant, &mut faults);
    }
    let stored = match &known {
        Some(tenant) => stored(c, &Id::from(tenant.id))?,
        None => Stored::default(),
    };
    check_references(&batch, stored, &mut faults);
    if !faults.is_empty() {
        return Ok(Err(faults.into_list()));
    }
    let tenant = match known {
        Some(tenant) => tenant,
        None => people::ensure_tenant(c, new_tenant_id, &batch.tenant, now)?,
    };
    write(c, tenant.id, batch, now).map(Ok)
}

fn find_tenant(c: &Connection, name: &str) -> Result<Option<TenantRow>, StoreError> {
    first(&mut *c.prepare_cached("SELECT id, slug FROM tenants WHERE slug = ?1 OR id = lower(?1)")?, params![name], tenant)
}

fn stored(c: &Connection, tenant: &Id) -> Result<Stored, StoreError> {
    let ids = |sql: &str| -> Result<HashSet<i64>, StoreError> {
        let found = all(&mut *c.prepare_cached(sql)?, params![tenant], |columns| columns.int())?;
        Ok(found.into_iter().collect())
    };
    let mut external = c.prepare_cached("SELECT external_id, id FROM users WHERE tenant_id = ?1 AND external_id IS NOT NULL")?;
    let external_ids: HashMap<String, i64> =
        all(&mut external, params![tenant], |columns| Ok((columns.text()?, columns.int()?)))?.into_iter().collect();
    Ok(Stored {
        branches: ids("SELECT id FROM branches WHERE tenant_id = ?1")?,
        roles: ids("SELECT id FROM roles WHERE tenant_id = ?1")?,
        users: ids("SELECT id FROM users WHERE tenant_id = ?1")?,
        external_ids,
    })
}

fn write(c: &Connection, tenant_id: Uuid, batch: WorkspaceBatch, now: Timestamp) -> Result<ImportReport, StoreError> {
    let tenant = Id::from(tenant_id);
    let counts = [
        ("branches", batch.branches.len()),
        ("roles", batch.roles.len()),
        ("users", batch.users.len()),
        ("requests", batch.requests.len()),
        ("tasks", batch.tasks.len()),
        ("worktimes", batch.worktimes.len()),
        ("cerebro_articles", batch.cerebro_articles.len()),
    ];
    let WorkspaceBatch { branches, roles, users, requests, tasks, worktimes, cerebro_articles, .. } = batch;
    let batch = PeopleBatch { branches, roles, users };
    free_external_ids(c, &tenant, &batch)?;
    people::put(c, &tenant, &batch)?;
    let created = Stamp::from(now);
    requests.iter().try_for_each(|row| put_request(c, &tenant, row, &created))?;
    tasks.iter().try_for_each(|row| put_task(c, &tenant, row, &created))?;
    worktimes.iter().try_for_each(|row| put_worktime(c, &tenant, row))?;
    cerebro_articles.iter().try_for_each(|row| put_article(c, &tenant, row))?;
    crash::point("inside_import");
    let written = counts.into_iter().filter(|(_, count)| *count > 0).map(|(table, count)| (table.to_owned(), count as u64));
    Ok(ImportReport { tenant_id, written: written.collect::<BTreeMap<_, _>>() })
}

/// Two users in the file may exchange their external ids; the unique index would refuse the first of the two rows.
fn free_external_ids(c: &Connection, tenant: &Id, batch: &PeopleBatch) -> Result<(), StoreError> {
    let mut free = c.prepare_cached("UPDATE users SET external_id = NULL WHERE tenant_id = ?1 AND external_id = ?2 AND id <> ?3")?;
    for user in batch.users.iter().filter(|user| user.external_id.is_some()) {
        // In most cases no user has the external id, so no row is no error.
        free.execute(params![tenant, user.external_id, user.id])?;
    }
    Ok(())
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
