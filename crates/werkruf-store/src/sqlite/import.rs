//! An import, inside the writer's transaction. The batch is checked first, so that a batch with faults writes nothing.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::audit::{record, stored_people};
use super::people_write as people;
use super::row::{all, first, tenant};
use super::text::Id;
use crate::import::{
    Faults, Import, ImportBatch, ImportFault, ImportReport, Known, Stored, acts, check_new_tenant, check_references, check_values,
};
use crate::{PeopleBatch, Recorder, StoreError, StoreFuture, TenantRow, crash};

impl Import for SqliteStore {
    fn import(&self, batch: ImportBatch, new_tenant_id: Uuid, now: Timestamp) -> StoreFuture<'_, Result<ImportReport, Vec<ImportFault>>> {
        Box::pin(async move {
            let (faults, batch) = check_values(batch).await?;
            let recorder = self.recorder.clone();
            self.about_people(move |c| import(c, &recorder, batch, faults, new_tenant_id, now)).await
        })
    }
}

/// Writes the batch unless the check of its values, which ran before, or the check of its references found faults.
fn import(
    c: &Connection,
    recorder: &Recorder,
    batch: ImportBatch,
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
    let (roles, users): (Vec<i64>, Vec<i64>) =
        (batch.roles.iter().map(|role| role.id).collect(), batch.users.iter().map(|user| user.id).collect());
    let (roles, users) = stored_people(c, &Id::from(tenant.id), &roles, &users)?;
    let (acts, by) = (acts(&batch, &roles, &users)?, batch.by.clone());
    let report = write(c, tenant.id, batch, now)?;
    record(c, recorder, tenant.id, &by, &acts, now)?;
    crash::point("inside_import");
    Ok(Ok(report))
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
    let ids = Known {
        branches: ids("SELECT id FROM branches WHERE tenant_id = ?1")?,
        roles: ids("SELECT id FROM roles WHERE tenant_id = ?1")?,
        users: ids("SELECT id FROM users WHERE tenant_id = ?1")?,
    };
    Ok(Stored { ids, external_ids })
}

fn write(c: &Connection, tenant_id: Uuid, batch: ImportBatch, now: Timestamp) -> Result<ImportReport, StoreError> {
    let tenant = Id::from(tenant_id);
    let written = batch.counts();
    let ImportBatch { branches, roles, users, of_modules, .. } = batch;
    let people = PeopleBatch { branches, roles, users };
    free_external_ids(c, &tenant, &people)?;
    people::put(c, &tenant, &people)?;
    of_modules.iter().try_for_each(|rows| rows.write_sqlite(c, tenant_id, now))?;
    Ok(ImportReport { tenant_id, written })
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
