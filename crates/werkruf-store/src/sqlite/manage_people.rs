//! [`ManagePeople`] on SQLite. An edit runs in the transaction of the writer: what it read stays so until it has written.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::json;
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::audit::{ROLE_JSON, USER_JSON, record};
use super::people_write::{self, hold_role, put_branch, put_role};
use super::row::{Columns, all, first};
use super::text::{Id, Stamp};
use crate::manage_people::{self, EditRequest, EditStep, References, act, has_other_roles, lost_name};
use crate::module::{naming_roles, of_branches};
use crate::{
    Author, EditRefusal, ManagePeople, NewUser, NumberPage, Order, PeopleBatch, PeopleEdit, PeopleKind, PeoplePage, PeopleRow, StoreError,
    StoreFuture, Uses, canonical_phone,
};

const BRANCH_JSON: &str = "json_object('id', id, 'name', name, 'time_zone', time_zone)";

/// The JSON of a row, and its table.
const fn source(kind: PeopleKind) -> (&'static str, &'static str) {
    let json = match kind {
        PeopleKind::User => USER_JSON,
        PeopleKind::Role => ROLE_JSON,
        PeopleKind::Branch => BRANCH_JSON,
    };
    (json, kind.table())
}

impl ManagePeople for SqliteStore {
    fn people(&self, tenant_id: Uuid, kind: PeopleKind, page: NumberPage) -> StoreFuture<'_, PeoplePage> {
        Box::pin(self.readers.list(move |c| page.read(kind, &list(c, tenant_id, kind, page)?)))
    }
    fn people_row(&self, tenant_id: Uuid, kind: PeopleKind, id: i64) -> StoreFuture<'_, Option<PeopleRow>> {
        Box::pin(self.readers.look_up(move |c| load(c, &Id::from(tenant_id), kind, id)))
    }
    fn edit_people(
        &self,
        tenant_id: Uuid,
        kind: PeopleKind,
        edit: PeopleEdit,
        by: Author,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<PeopleRow, EditRefusal>> {
        let request = EditRequest { tenant_id, kind, edit, by, now, recorder: self.recorder.clone(), modules: self.modules };
        Box::pin(self.about_people(move |c| apply(c, &request)))
    }

    fn put_people(&self, tenant_id: Uuid, batch: PeopleBatch) -> StoreFuture<'_, ()> {
        Box::pin(self.about_people(move |c| people_write::put(c, &Id::from(tenant_id), &batch)))
    }
}

/// The JSON of the rows of a page.
fn list(c: &Connection, tenant_id: Uuid, kind: PeopleKind, page: NumberPage) -> Result<Vec<String>, StoreError> {
    let (json, table) = source(kind);
    let (compare, order, start) = match page.order {
        Order::OldestFirst => (">", "ASC", i64::MIN),
        Order::NewestFirst => ("<", "DESC", i64::MAX),
    };
    // The first id may be the smallest or largest number that there is.
    let compare = if page.after.is_none() { format!("{compare}=") } else { compare.to_owned() };
    let sql = format!("SELECT {json} FROM {table} WHERE tenant_id = ?1 AND id {compare} ?2 ORDER BY id {order} LIMIT ?3");
    let mut statement = c.prepare_cached(&sql)?;
    let mut rows = statement.query(params![Id::from(tenant_id), page.after.unwrap_or(start), page.limit])?;
    let (mut texts, mut bytes) = (Vec::new(), 0_usize);
    while bytes < page.max_bytes
        && let Some(row) = rows.next()?
    {
        let text = Columns::new(row).text()?;
        bytes = bytes.saturating_add(text.len());
        texts.push(text);
    }
    Ok(texts)
}

fn load(c: &Connection, tenant: &Id, kind: PeopleKind, id: i64) -> Result<Option<PeopleRow>, StoreError> {
    let (json, table) = source(kind);
    let mut statement = c.prepare_cached(&format!("SELECT {json} FROM {table} WHERE tenant_id = ?1 AND id = ?2"))?;
    first(&mut statement, params![tenant, id], |columns| columns.text())?.map(|text| kind.parse(&text)).transpose()
}

fn next_id(c: &Connection, tenant: &Id, kind: PeopleKind) -> Result<Option<i64>, StoreError> {
    let mut statement = c.prepare_cached(&format!("SELECT coalesce(max(id), 0) FROM {} WHERE tenant_id = ?1", kind.table()))?;
    Ok(manage_people::next_id(first(&mut statement, params![tenant], |columns| columns.int())?))
}

fn apply(c: &Connection, request: &EditRequest) -> Result<Result<PeopleRow, EditRefusal>, StoreError> {
    let (tenant, kind) = (Id::from(request.tenant_id), request.kind);
    let id = match request.edit.id() {
        Ok(Some(id)) => id,
        Ok(None) => match next_id(c, &tenant, kind)? {
            Some(id) => id,
            None => return Ok(Err(EditRefusal::no_free_id())),
        },
        Err(refusal) => return Ok(Err(refusal)),
    };
    let (row, act) = match request.edit.step(kind, id, load(c, &tenant, kind, id)?)? {
        EditStep::Refuse(refusal) => return Ok(Err(refusal)),
        EditStep::Keep(row) => return Ok(Ok(row)),
        EditStep::Remove(row) => {
            if let Err(refusal) = uses(c, request, id, row.role_name(), true)?.check() {
                return Ok(Err(refusal));
            }
            let sql = format!("DELETE FROM {} WHERE tenant_id = ?1 AND id = ?2", kind.table());
            c.prepare_cached(&sql)?.execute(params![tenant, id])?;
            let act = act(Some(&row), None)?;
            (row, act)
        }
        EditStep::Write { before, after } => {
            if let Some(name) = lost_name(before.as_deref(), &after)
                && let Err(refusal) = uses(c, request, id, Some(name), false)?.check()
            {
                return Ok(Err(refusal));
            }
            if let Err(refusal) = references(c, &tenant, &after)?.check(&after) {
                return Ok(Err(refusal));
            }
            write(c, &tenant, before.as_deref(), &after)?;
            let act = act(before.as_deref(), Some(&after))?;
            (after, act)
        }
    };
    record(c, &request.recorder, request.tenant_id, &request.by, &[act], request.now)?;
    Ok(Ok(row))
}

/// What names the role or branch; `with_users`: also the users whose row has the role.
fn uses(c: &Connection, request: &EditRequest, id: i64, role: Option<&str>, with_users: bool) -> Result<Uses, StoreError> {
    let tenant = Id::from(request.tenant_id);
    let any = |table: &str, condition: &str| format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE tenant_id = ?1 AND {condition})");
    let of_modules: Vec<(&str, String)> = match role {
        Some(_) => naming_roles(request.modules)
            .map(|(table, column)| (table, any(table, &format!("?3 IN (SELECT value FROM json_each({column}))"))))
            .collect(),
        None => of_branches(request.modules).map(|(table, column)| (table, any(table, &format!("{column} = ?2")))).collect(),
    };
    let users = match role {
        Some(name) => {
            let values = params![tenant, id, name, Stamp::from(request.now), with_users];
            first(&mut *c.prepare_cached(USERS_OF_ROLE)?, values, |columns| columns.int())?
        }
        None => first(&mut *c.prepare_cached(USERS_OF_BRANCH)?, params![tenant, id], |columns| columns.int())?,
    };
    let mut tables = Vec::new();
    for (table, sql) in of_modules {
        let mut statement = c.prepare(&sql)?;
        let found = match role {
            Some(name) => first(&mut statement, params![tenant, id, name], |columns| columns.flag())?,
            None => first(&mut statement, params![tenant, id], |columns| columns.flag())?,
        };
        if found == Some(true) && tables.last() != Some(&table) {
            tables.push(table);
        }
    }
    Ok(Uses { users: users.unwrap_or(0), tables })
}

const USERS_OF_BRANCH: &str = "SELECT count(*) FROM users WHERE tenant_id = ?1 AND branch_id = ?2";
/// ?2 the role, ?3 its name, ?4 now, ?5 whether stored roles count beside those of valid tokens.
const USERS_OF_ROLE: &str = "SELECT count(*) FROM users WHERE tenant_id = ?1 AND (
      ?5 AND id IN (SELECT user_id FROM user_roles WHERE tenant_id = ?1 AND role_id = ?2)
      OR token_roles_until > ?4 AND ?3 IN (SELECT value FROM json_each(token_roles, '$.names')))";

fn references(c: &Connection, tenant: &Id, row: &PeopleRow) -> Result<References, StoreError> {
    if let PeopleRow::Role(role) = row {
        let mut other = c.prepare_cached("SELECT id FROM roles WHERE tenant_id = ?1 AND name = ?2 AND id <> ?3 ORDER BY id LIMIT 1")?;
        let name_of = first(&mut other, params![tenant, role.name, role.id], |columns| columns.int())?;
        return Ok(References { name_of, ..References::default() });
    }
    let PeopleRow::User(user) = row else { return Ok(References::default()) };
    let mut branch = c.prepare_cached("SELECT id FROM branches WHERE tenant_id = ?1 AND id = ?2")?;
    let mut roles = c.prepare_cached("SELECT id FROM roles WHERE tenant_id = ?1 AND id IN (SELECT value FROM json_each(?2))")?;
    let mut other = c.prepare_cached("SELECT id FROM users WHERE tenant_id = ?1 AND external_id = ?2 AND id <> ?3")?;
    let role_ids = json!(user.role_ids).to_string();
    Ok(References {
        branch: first(&mut branch, params![tenant, user.branch_id], |columns| columns.int())?.is_some(),
        roles: all(&mut roles, params![tenant, role_ids], |columns| columns.int())?.into_iter().collect(),
        external_id_of: first(&mut other, params![tenant, user.external_id, user.id], |columns| columns.int())?,
        name_of: None,
    })
}

fn write(c: &Connection, tenant: &Id, before: Option<&PeopleRow>, after: &PeopleRow) -> Result<(), StoreError> {
    match after {
        PeopleRow::Branch(branch) => put_branch(c, tenant, branch),
        PeopleRow::Role(role) => put_role(c, tenant, role),
        PeopleRow::User(user) => write_user(c, tenant, user, has_other_roles(before, user)),
    }
}

fn write_user(c: &Connection, tenant: &Id, user: &NewUser, other_roles: bool) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO users (tenant_id, id, first_name, last_name, email, phone, whatsapp_user_id, external_id, locale, time_zone,
           branch_id, phone_key, active) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (tenant_id, id) DO UPDATE SET first_name = excluded.first_name, last_name = excluded.last_name,
           email = excluded.email, phone = excluded.phone, whatsapp_user_id = excluded.whatsapp_user_id,
           external_id = excluded.external_id, locale = excluded.locale, time_zone = excluded.time_zone, branch_id = excluded.branch_id,
           phone_key = excluded.phone_key, active = excluded.active",
    )?
    .execute(params![
        tenant,
        user.id,
        user.first_name,
        user.last_name,
        user.email,
        user.phone,
        user.whatsapp_user_id,
        user.external_id,
        user.locale,
        user.time_zone,
        user.branch_id,
        user.phone.as_deref().and_then(canonical_phone),
        user.is_active(),
    ])?;
    if other_roles {
        let sql = "UPDATE users SET token_roles = NULL, token_roles_until = NULL WHERE tenant_id = ?1 AND id = ?2";
        c.prepare_cached(sql)?.execute(params![tenant, user.id])?;
        c.prepare_cached("DELETE FROM user_roles WHERE tenant_id = ?1 AND user_id = ?2")?.execute(params![tenant, user.id])?;
        user.role_ids.iter().try_for_each(|role_id| hold_role(c, tenant, user.id, *role_id))?;
    }
    Ok(())
}
