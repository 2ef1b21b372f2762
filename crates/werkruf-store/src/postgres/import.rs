//! An import, in one transaction: checked first, so that a batch with faults writes nothing. Rows are sent as JSON, one statement per table.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::audit::{record, stored_people};
use super::fault::Fault;
use super::flush::{DbRole, Statement, Transaction};
use super::manage_people::lock_people;
use super::param::{ms, p};
use super::people_write::People;
use super::row::{all, first, only, tenant};
use super::text::{clean, clean_json};
use crate::import::{
    Faults, Import, ImportBatch, ImportFault, ImportReport, Known, Stored, acts, check_new_tenant, check_references, check_values,
};
use crate::{PeopleBatch, Recorder, StoreFuture, TenantRow, crash};

impl Import for PostgresStore {
    fn import(&self, batch: ImportBatch, new_tenant_id: Uuid, now: Timestamp) -> StoreFuture<'_, Result<ImportReport, Vec<ImportFault>>> {
        Box::pin(async move {
            let (faults, batch) = check_values(batch).await?;
            let import = Arc::new(FileImport { batch, faults, new_tenant_id, now, recorder: self.recorder.clone() });
            self.with(DbRole::System, move |transaction| {
                let import = Arc::clone(&import);
                Box::pin(async move { import.run(transaction).await })
            })
            .await
        })
    }
}

/// A batch and what its import needs.
struct FileImport {
    batch: ImportBatch,
    /// Faults that the check of the values found.
    faults: Faults,
    new_tenant_id: Uuid,
    now: Timestamp,
    recorder: Recorder,
}

impl FileImport {
    /// Writes the batch unless it has faults. Starts in the system role, which can find the tenant, and continues as that tenant.
    async fn run(&self, transaction: &Transaction) -> Result<Result<ImportReport, Vec<ImportFault>>, Fault> {
        let mut faults = self.faults.clone();
        let known = self.find_tenant(transaction).await?;
        if known.is_none() {
            check_new_tenant(&self.batch.tenant, &mut faults);
        }
        let stored = match &known {
            Some(tenant) => {
                lock_people(transaction, tenant.id).await?;
                stored(transaction, tenant.id).await?
            }
            None => Stored::default(),
        };
        check_references(&self.batch, stored, &mut faults);
        if !faults.is_empty() {
            return Ok(Err(faults.into_list()));
        }
        let tenant_id = match known {
            Some(tenant) => tenant.id,
            None => {
                let tenant_id = self.make_tenant(transaction).await?;
                // Another import may have made it at the same time.
                lock_people(transaction, tenant_id).await?;
                tenant_id
            }
        };
        let become_tenant = "SELECT set_config('role', 'werkruf_app', true), set_config('werkruf.tenant', $1::text, true)";
        transaction.query(become_tenant, &[p(&tenant_id)]).await?;
        let batch = &self.batch;
        let (roles, users) = (batch.roles.iter().map(|role| role.id).collect(), batch.users.iter().map(|user| user.id).collect());
        let (roles, users) = stored_people(transaction, tenant_id, roles, users).await?;
        let acts = acts(batch, &roles, &users)?;
        let report = self.write(transaction, tenant_id).await?;
        record(transaction, &self.recorder, tenant_id, &batch.by, &acts, self.now).await?;
        crash::point("inside_import");
        Ok(Ok(report))
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
        let external_ids = self.external_ids();
        let external_ids = clean_json(&external_ids);
        let external_ids = [p(&tenant_id), p(&external_ids)];
        let of_people = people.params(&tenant_id);
        let mut statements = vec![Statement { sql: CLEAR_EXTERNAL_IDS, params: &external_ids }];
        statements.extend(people.statements(&of_people));
        transaction.run(&statements).await?;
        for rows in &batch.of_modules {
            rows.write_postgres(transaction, tenant_id, ms(self.now)).await?;
        }
        Ok(ImportReport { tenant_id, written: batch.counts() })
    }

    fn external_ids(&self) -> String {
        let users = self.batch.users.iter().filter(|user| user.external_id.is_some());
        Value::from_iter(users.map(|user| json!({"id": user.id, "external_id": user.external_id}))).to_string()
    }
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
    let ids = Known { branches: ids(branches)?, roles: ids(roles)?, users: ids(users)? };
    Ok(Stored { ids, external_ids: HashMap::from_iter(external_ids) })
}

/// Two users of the batch may exchange their external ids; the unique index would refuse the first of the two rows.
const CLEAR_EXTERNAL_IDS: &str = "UPDATE users SET external_id = NULL
    FROM json_to_recordset($2::json) AS given (id bigint, external_id text)
    WHERE users.tenant_id = $1 AND users.external_id = given.external_id AND users.id <> given.id";
