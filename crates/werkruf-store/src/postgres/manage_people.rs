//! [`ManagePeople`] on PostgreSQL. An edit reads, decides and writes in one transaction; edits, imports and erasures of a tenant wait for
//! each other.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::json;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::audit::{ROLE_JSON, USER_JSON, append};
use super::fault::Fault;
use super::flush::{DbRole, Statement, Transaction};
use super::param::{ms, p};
use super::people_write::{MAX_ATTEMPTS, People};
use super::row::{all, first, only};
use super::text::clean_json;
use crate::manage_people::{EditRequest, EditStep, References, act, has_other_roles, lost_name, next_id};
use crate::module::{naming_roles, of_branches};
use crate::{
    Act, Author, EditRefusal, ManagePeople, NewUser, NumberPage, Order, PeopleBatch, PeopleEdit, PeopleKind, PeoplePage, PeopleRow,
    StoreError, StoreFuture, Uses, canonical_phone,
};

const BRANCH_JSON: &str = "json_build_object('id', id, 'name', name, 'time_zone', time_zone)::text";

/// The JSON of a row, and its table.
const fn source(kind: PeopleKind) -> (&'static str, &'static str) {
    let json = match kind {
        PeopleKind::User => USER_JSON,
        PeopleKind::Role => ROLE_JSON,
        PeopleKind::Branch => BRANCH_JSON,
    };
    (json, kind.table())
}

impl ManagePeople for PostgresStore {
    fn people(&self, tenant_id: Uuid, kind: PeopleKind, page: NumberPage) -> StoreFuture<'_, PeoplePage> {
        Box::pin(async move {
            let (json, table) = source(kind);
            let (compare, order) = match page.order {
                Order::OldestFirst => (">", "ASC"),
                Order::NewestFirst => ("<", "DESC"),
            };
            // The rows before the one that fills the page, and that one.
            let sql = format!(
                "SELECT body FROM (SELECT id, body, sum(octet_length(body)) OVER (ORDER BY id {order}) - octet_length(body) AS before
                   FROM (SELECT id, {json} AS body FROM {table} WHERE tenant_id = $1 AND ($2::bigint IS NULL OR id {compare} $2)
                     ORDER BY id {order} LIMIT $3) AS page) AS sized WHERE before < $4 ORDER BY id {order}"
            );
            let (limit, max_bytes) = (i64::from(page.limit), i64::try_from(page.max_bytes).unwrap_or(i64::MAX));
            let values = [p(&tenant_id), p(&page.after), p(&limit), p(&max_bytes)];
            let texts = all(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, |columns| columns.text())?;
            page.read(kind, &texts)
        })
    }
    fn people_row(&self, tenant_id: Uuid, kind: PeopleKind, id: i64) -> StoreFuture<'_, Option<PeopleRow>> {
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), &by_id(kind), &[p(&tenant_id), p(&id)]).await?;
            first(&rows, |columns| columns.text())?.map(|text| kind.parse(&text)).transpose()
        })
    }
    fn edit_people(
        &self,
        tenant_id: Uuid,
        kind: PeopleKind,
        edit: PeopleEdit,
        by: Author,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<PeopleRow, EditRefusal>> {
        let request = EditRequest { tenant_id, kind, edit, by, now: ms(now), recorder: self.recorder.clone(), modules: self.modules };
        let edit = Arc::new(Editing { request, attempt: Mutex::default() });
        Box::pin(self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let edit = Arc::clone(&edit);
            Box::pin(async move { edit.run(transaction).await })
        }))
    }

    fn put_people(&self, tenant_id: Uuid, batch: PeopleBatch) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let people = People::new(&batch);
            let (tenant, params) = ([p(&tenant_id)], people.params(&tenant_id));
            let mut statements = vec![Statement { sql: LOCK_PEOPLE, params: &tenant }];
            statements.extend(people.statements(&params));
            self.run(DbRole::Tenant(tenant_id), &statements).await?;
            Ok(())
        })
    }
}

fn by_id(kind: PeopleKind) -> String {
    let (json, table) = source(kind);
    format!("SELECT {json} FROM {table} WHERE tenant_id = $1 AND id = $2")
}

/// Locks the tenant's row: writes of people and erasures of a tenant wait for each other until the end of the transaction. It is the first
/// lock of each of them, so none waits for another while it holds a row that the other needs.
pub(super) const LOCK_PEOPLE: &str = "SELECT id FROM tenants WHERE id = $1 FOR NO KEY UPDATE";

pub(super) async fn lock_people(transaction: &Transaction, tenant_id: Uuid) -> Result<(), Fault> {
    transaction.query(LOCK_PEOPLE, &[p(&tenant_id)]).await.map(|_| ())
}

/// What an attempt wrote, and its transaction. If the answer to its commit was lost, the next attempt asks what became of it.
struct Attempt {
    transaction: String,
    row: PeopleRow,
}

struct Editing {
    request: EditRequest,
    attempt: Mutex<Option<Attempt>>,
}

impl Editing {
    async fn run(&self, transaction: &Transaction) -> Result<Result<PeopleRow, EditRefusal>, Fault> {
        // An earlier attempt holds the lock until its end, so from here on its end is known.
        lock_people(transaction, self.request.tenant_id).await?;
        if let Some(done) = self.committed(transaction).await? {
            return Ok(Ok(done));
        }
        let named = match self.request.edit.id() {
            Ok(named) => named,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // A guest who came meanwhile may have the next id.
        for _ in 0..MAX_ATTEMPTS {
            let Some(id) = self.free_id(transaction, named).await? else { return Ok(Err(EditRefusal::no_free_id())) };
            let (row, act) = match self.request.edit.step(self.request.kind, id, self.load(transaction, id).await?)? {
                EditStep::Refuse(EditRefusal::Taken(_)) if named.is_none() => continue,
                EditStep::Refuse(refusal) => return Ok(Err(refusal)),
                EditStep::Keep(row) => return Ok(Ok(row)),
                EditStep::Remove(row) => match self.remove(transaction, row).await? {
                    Ok(removed) => removed,
                    Err(refusal) => return Ok(Err(refusal)),
                },
                EditStep::Write { before, after } => {
                    if let Some(name) = lost_name(before.as_deref(), &after)
                        && let Err(refusal) = self.uses(transaction, id, Some(name), false).await?.check()
                    {
                        return Ok(Err(refusal));
                    }
                    if let Err(refusal) = self.references(transaction, &after).await?.check(&after) {
                        return Ok(Err(refusal));
                    }
                    if before.is_none() && !self.claim(transaction, id).await? {
                        continue;
                    }
                    self.write(transaction, before.as_deref(), &after).await?;
                    let act = act(before.as_deref(), Some(&after))?;
                    (after, act)
                }
            };
            append(transaction, &self.request.recorder, self.request.tenant_id, &self.request.by, &[act], self.request.now).await?;
            self.remember(transaction, &row).await?;
            return Ok(Ok(row));
        }
        Err(StoreError::Unavailable("other processes took every new number".to_owned()).into())
    }

    async fn free_id(&self, transaction: &Transaction, named: Option<i64>) -> Result<Option<i64>, Fault> {
        if named.is_some() {
            return Ok(named);
        }
        let sql = format!("SELECT coalesce(max(id), 0) FROM {} WHERE tenant_id = $1", self.request.kind.table());
        let largest = first(&transaction.query(&sql, &[p(&self.request.tenant_id)]).await?, |columns| columns.int())?;
        Ok(next_id(largest))
    }

    async fn load(&self, transaction: &Transaction, id: i64) -> Result<Option<PeopleRow>, Fault> {
        let rows = transaction.query(&by_id(self.request.kind), &[p(&self.request.tenant_id), p(&id)]).await?;
        Ok(first(&rows, |columns| columns.text())?.map(|text| self.request.kind.parse(&text)).transpose()?)
    }

    /// The row of an earlier attempt that was committed although its answer was lost.
    async fn committed(&self, transaction: &Transaction) -> Result<Option<PeopleRow>, Fault> {
        let Some(Attempt { transaction: id, row }) = self.attempt.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(None);
        };
        // After a failover to a server that never saw the transaction its number may lie in the future.
        let sql = "SELECT CASE WHEN $1::text::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status($1::text::xid8) END";
        let status = first(&transaction.query(sql, &[p(&id.as_str())]).await?, |columns| columns.text_or_null())?.flatten();
        Ok(Some(row).filter(|_| status.as_deref() == Some("committed")))
    }

    async fn remember(&self, transaction: &Transaction, row: &PeopleRow) -> Result<(), Fault> {
        let id = only(&transaction.query("SELECT pg_current_xact_id()::text", &[]).await?, |columns| columns.text())?;
        *self.attempt.lock().unwrap_or_else(PoisonError::into_inner) = Some(Attempt { transaction: id, row: row.clone() });
        Ok(())
    }

    async fn remove(&self, transaction: &Transaction, row: PeopleRow) -> Result<Result<(PeopleRow, Act), EditRefusal>, Fault> {
        let id = row.id();
        let values = [p(&self.request.tenant_id), p(&id)];
        let table = self.request.kind.table();
        // Locked first, so that nobody gets the role or branch while users are counted.
        let lock = format!("SELECT id FROM {table} WHERE tenant_id = $1 AND id = $2 FOR UPDATE");
        transaction.query(&lock, &values).await?;
        if let Err(refusal) = self.uses(transaction, id, row.role_name(), true).await?.check() {
            return Ok(Err(refusal));
        }
        transaction.query(&format!("DELETE FROM {table} WHERE tenant_id = $1 AND id = $2"), &values).await?;
        let act = act(Some(&row), None)?;
        Ok(Ok((row, act)))
    }

    /// What names the role or branch; `with_users`: also the users whose row has the role.
    async fn uses(&self, transaction: &Transaction, id: i64, role: Option<&str>, with_users: bool) -> Result<Uses, Fault> {
        let (by_id, by_name) = ([p(&self.request.tenant_id), p(&id)], [p(&self.request.tenant_id), p(&role)]);
        let of_role = [p(&self.request.tenant_id), p(&id), p(&role), p(&self.request.now), p(&with_users)];
        let any = |table: &str, condition: &str| format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE tenant_id = $1 AND {condition})");
        let of_modules: Vec<(&str, String)> = match role {
            Some(_) => naming_roles(self.request.modules)
                .map(|(table, column)| (table, any(table, &format!("$2 IN (SELECT json_array_elements_text({column}::json))"))))
                .collect(),
            None => of_branches(self.request.modules).map(|(table, column)| (table, any(table, &format!("{column} = $2")))).collect(),
        };
        let users = match role {
            Some(_) => Statement { sql: USERS_OF_ROLE, params: &of_role },
            None => Statement { sql: USERS_OF_BRANCH, params: &by_id },
        };
        let mut statements = vec![users];
        let params = if role.is_some() { &by_name } else { &by_id };
        statements.extend(of_modules.iter().map(|(_, sql)| Statement { sql, params }));
        let found = transaction.run(&statements).await?;
        let users = first(found.first().map_or(&[], Vec::as_slice), |columns| columns.int())?.unwrap_or(0);
        let mut tables = Vec::new();
        for ((table, _), rows) in of_modules.iter().zip(found.iter().skip(1)) {
            if first(rows, |columns| columns.flag())? == Some(true) && tables.last() != Some(table) {
                tables.push(*table);
            }
        }
        Ok(Uses { users, tables })
    }

    /// The rows that the row refers to. They cannot be deleted before the end of the transaction.
    async fn references(&self, transaction: &Transaction, row: &PeopleRow) -> Result<References, Fault> {
        if let PeopleRow::Role(role) = row {
            let sql = "SELECT id FROM roles WHERE tenant_id = $1 AND name = $2 AND id <> $3 ORDER BY id LIMIT 1";
            let rows = transaction.query(sql, &[p(&self.request.tenant_id), p(&role.name.as_str()), p(&role.id)]).await?;
            return Ok(References { name_of: first(&rows, |columns| columns.int())?, ..References::default() });
        }
        let PeopleRow::User(user) = row else { return Ok(References::default()) };
        let external_id = user.external_id.as_deref();
        let (branch, roles) = ([p(&self.request.tenant_id), p(&user.branch_id)], [p(&self.request.tenant_id), p(&user.role_ids)]);
        let other = [p(&self.request.tenant_id), p(&external_id), p(&user.id)];
        let found = transaction
            .run(&[
                Statement { sql: "SELECT id FROM branches WHERE tenant_id = $1 AND id = $2 FOR KEY SHARE", params: &branch },
                Statement { sql: "SELECT id FROM roles WHERE tenant_id = $1 AND id = ANY ($2) FOR KEY SHARE", params: &roles },
                Statement { sql: "SELECT id FROM users WHERE tenant_id = $1 AND external_id = $2 AND id <> $3", params: &other },
            ])
            .await?;
        let [branch, roles, other] = &found[..] else { return Ok(References::default()) };
        Ok(References {
            branch: !branch.is_empty(),
            roles: all(roles, |columns| columns.int())?.into_iter().collect(),
            external_id_of: first(other, |columns| columns.int())?,
            name_of: None,
        })
    }

    /// Takes the id of a new row; false if somebody has it already.
    async fn claim(&self, transaction: &Transaction, id: i64) -> Result<bool, Fault> {
        let sql = match self.request.kind {
            PeopleKind::User => {
                "INSERT INTO users (tenant_id, id, first_name, last_name, locale, active) VALUES ($1, $2, '', '', '', false)
                 ON CONFLICT DO NOTHING RETURNING id"
            }
            PeopleKind::Role => "INSERT INTO roles (tenant_id, id, name) VALUES ($1, $2, '') ON CONFLICT DO NOTHING RETURNING id",
            PeopleKind::Branch => {
                "INSERT INTO branches (tenant_id, id, name, time_zone) VALUES ($1, $2, '', '') ON CONFLICT DO NOTHING RETURNING id"
            }
        };
        Ok(!transaction.query(sql, &[p(&self.request.tenant_id), p(&id)]).await?.is_empty())
    }

    async fn write(&self, transaction: &Transaction, before: Option<&PeopleRow>, after: &PeopleRow) -> Result<(), Fault> {
        let mut batch = PeopleBatch::default();
        match after {
            PeopleRow::Branch(branch) => batch.branches.push(branch.clone()),
            PeopleRow::Role(role) => batch.roles.push(role.clone()),
            PeopleRow::User(user) => {
                return self.write_user(transaction, user, has_other_roles(before, user)).await;
            }
        }
        let people = People::new(&batch);
        transaction.run(&people.statements(&people.params(&self.request.tenant_id))).await?;
        Ok(())
    }

    async fn write_user(&self, transaction: &Transaction, user: &NewUser, other_roles: bool) -> Result<(), Fault> {
        let mut row = json!(user);
        row["active"] = json!(user.is_active());
        row["phone_key"] = json!(user.phone.as_deref().and_then(canonical_phone));
        let row = row.to_string();
        let row = clean_json(&row);
        let (values, roles) =
            ([p(&self.request.tenant_id), (&row, Type::TEXT)], [p(&self.request.tenant_id), p(&user.id), p(&user.role_ids)]);
        let mut statements = vec![Statement { sql: UPDATE_USER, params: &values }];
        if other_roles {
            statements.extend([NO_TOKEN_ROLES, NO_ROLES].map(|sql| Statement { sql, params: &roles[..2] }));
            statements.push(Statement { sql: ROLES, params: &roles });
        }
        transaction.run(&statements).await?;
        Ok(())
    }
}

const USERS_OF_BRANCH: &str = "SELECT count(*) FROM users WHERE tenant_id = $1 AND branch_id = $2";
/// $2 the role, $3 its name, $4 now, $5 whether stored roles count beside those of valid tokens.
const USERS_OF_ROLE: &str = "SELECT count(*) FROM users WHERE tenant_id = $1 AND (
      $5 AND id IN (SELECT user_id FROM user_roles WHERE tenant_id = $1 AND role_id = $2)
      OR token_roles_until > $4 AND $3 IN (SELECT json_array_elements_text(token_roles -> 'names')))";
const UPDATE_USER: &str = "UPDATE users SET first_name = given.first_name, last_name = given.last_name, email = given.email,
      phone = given.phone, whatsapp_user_id = given.whatsapp_user_id, external_id = given.external_id, locale = given.locale,
      time_zone = given.time_zone, branch_id = given.branch_id, phone_key = given.phone_key, active = given.active
    FROM json_to_record($2::json) AS given (id bigint, first_name text, last_name text, email text, phone text, whatsapp_user_id text,
      external_id text, locale text, time_zone text, branch_id bigint, phone_key text, active boolean)
    WHERE users.tenant_id = $1 AND users.id = given.id";
const NO_TOKEN_ROLES: &str = "UPDATE users SET token_roles = NULL, token_roles_until = NULL WHERE tenant_id = $1 AND id = $2";
const NO_ROLES: &str = "DELETE FROM user_roles WHERE tenant_id = $1 AND user_id = $2";
const ROLES: &str = "INSERT INTO user_roles (tenant_id, user_id, role_id) SELECT $1, $2, unnest($3::bigint[])";
