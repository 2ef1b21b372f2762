//! [`People`] on PostgreSQL: tenants, users, their permissions, and keys.
//!
//! Nothing is cached between two reads: another process may have changed a row meanwhile, and permissions count as they are now.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::{Principal, Uuid};

use super::PostgresStore;
use super::audit::record;
use super::credentials::{KeyWrite, key_by_id};
use super::flush::{DbRole, Statement};
use super::manage_people::LOCK_PEOPLE;
use super::param::{clean_or_null, ms, ms_or_null, p};
use super::people_write as write;
use super::records::{List, ListColumns};
use super::row::{self, Columns, all, first, only, person_address, tenant, user};
use super::text::{clean, clean_json};
use crate::audit::revoked;
use crate::{
    Author, KeyDigest, KeyRow, NewKey, Page, People, PeopleBatch, PersonAddress, StoreError, StoreFuture, TenantRow, TokenRoles, UserRow,
    canonical_phone,
};

/// The user with roles and permissions, of one snapshot. A function, because every request runs it, and planning it, with row-level
/// security of ten tables, takes ten times as long as running it: a session keeps the plan of a function.
const PRINCIPAL: &str = "SELECT * FROM principal_of($1, $2, $3)";

/// $2 the id of a channel, $3 the canonical phone. A user with another id of the channel is another person, whatever the phone.
const BY_ADDRESS: &str = "WITH by_id AS (SELECT * FROM users WHERE tenant_id = $1 AND whatsapp_user_id = $2),
      by_phone AS (SELECT * FROM users WHERE tenant_id = $1 AND phone_key = $3 AND ($2::text IS NULL OR whatsapp_user_id IS NULL)
        AND NOT EXISTS (SELECT 1 FROM by_id)),
      found AS (SELECT * FROM by_id UNION ALL SELECT * FROM by_phone)
    SELECT id, branch_id, locale, phone, whatsapp_user_id FROM found WHERE (SELECT bool_and(active) FROM found) ORDER BY id";
const BY_ROLES: &str = "SELECT id, branch_id, locale, phone, whatsapp_user_id FROM users WHERE tenant_id = $1 AND active AND id IN (
      SELECT held_roles.user_id FROM held_roles JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
      WHERE held_roles.tenant_id = $1 AND since <= $3 AND $3 < until AND roles.name IN (SELECT json_array_elements_text($2::json)))
    ORDER BY id";

impl People for PostgresStore {
    fn tenant(&self, name: String) -> StoreFuture<'_, Option<TenantRow>> {
        Box::pin(async move {
            let (id, slug) = (Uuid::try_parse(&name).ok(), clean(&name));
            let sql = "SELECT id, slug FROM tenants WHERE slug = $1 OR id = $2";
            first(&self.query(DbRole::System, sql, &[p(&slug), p(&id)]).await?, tenant)
        })
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<TenantRow>> {
        Box::pin(async move { all(&self.query(DbRole::System, "SELECT id, slug FROM tenants ORDER BY slug", &[]).await?, tenant) })
    }

    fn ensure_tenant(&self, id: Uuid, slug: String, now: Timestamp) -> StoreFuture<'_, TenantRow> {
        Box::pin(async move {
            let (slug, now) = (clean(&slug), ms(now));
            let values = [p(&id), p(&slug), p(&now)];
            let statements = [
                Statement { sql: "INSERT INTO tenants (id, slug, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", params: &values },
                // Where slug and id name different tenants, the slug is what people type.
                Statement {
                    sql: "SELECT id, slug FROM tenants WHERE slug = $2 OR id = $1 ORDER BY slug = $2 DESC LIMIT 1",
                    params: &values[..2],
                },
            ];
            only(&self.run(DbRole::System, &statements).await?.pop().unwrap_or_default(), tenant)
        })
    }

    fn principal(&self, tenant_id: Uuid, user_id: String) -> StoreFuture<'_, Option<Arc<Principal>>> {
        Box::pin(async move {
            let Ok(number) = user_id.parse::<i64>() else { return Ok(None) };
            let now = ms(self.clock.now());
            let rows = self.query(DbRole::Tenant(tenant_id), PRINCIPAL, &[p(&tenant_id), p(&number), p(&now)]).await?;
            Ok(first(&rows, |columns| principal(columns, tenant_id, user_id))?.map(Arc::new))
        })
    }

    fn user_by_external_id(&self, tenant_id: Uuid, external_id: String) -> StoreFuture<'_, Option<UserRow>> {
        Box::pin(async move {
            let external_id = clean(&external_id);
            let rows = self.query(DbRole::Tenant(tenant_id), write::BY_EXTERNAL_ID, &[p(&tenant_id), p(&external_id)]).await?;
            first(&rows, user)
        })
    }

    fn users_by_address(
        &self,
        tenant_id: Uuid,
        channel_user_id: Option<String>,
        phone: Option<String>,
    ) -> StoreFuture<'_, Vec<PersonAddress>> {
        Box::pin(async move {
            let (id, key) = (clean_or_null(channel_user_id.as_deref()), phone.as_deref().and_then(canonical_phone));
            let key = key.as_deref();
            let rows = self.query(DbRole::Tenant(tenant_id), BY_ADDRESS, &[p(&tenant_id), p(&id), p(&key)]).await?;
            all(&rows, person_address)
        })
    }

    fn users_with_roles(&self, tenant_id: Uuid, roles: Vec<String>) -> StoreFuture<'_, Vec<PersonAddress>> {
        Box::pin(async move {
            let roles = serde_json::to_string(&roles).map_err(|error| StoreError::Broken(error.to_string()))?;
            let (roles, now) = (clean_json(&roles), ms(self.clock.now()));
            all(&self.query(DbRole::Tenant(tenant_id), BY_ROLES, &[p(&tenant_id), (&roles, Type::TEXT), p(&now)]).await?, person_address)
        })
    }

    fn create_guest(&self, tenant_id: Uuid, user_id: Option<i64>, external_id: Option<String>, role: String) -> StoreFuture<'_, UserRow> {
        Box::pin(async move {
            let external_id = clean_or_null(external_id.as_deref()).map(|text| text.into_owned());
            let guest = Arc::new(write::Guest { tenant_id, user_id, external_id, role: clean(&role).into_owned() });
            self.with(DbRole::Tenant(tenant_id), move |transaction| {
                let guest = Arc::clone(&guest);
                Box::pin(async move { guest.make(transaction).await })
            })
            .await
        })
    }

    fn put_token_roles(&self, tenant_id: Uuid, user_id: i64, roles: Option<TokenRoles>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let text = roles.as_ref().map(serde_json::to_string).transpose().map_err(|error| StoreError::Broken(error.to_string()))?;
            let (text, until) = (text.as_deref().map(clean_json), ms_or_null(roles.map(|roles| roles.until)));
            let sql = "UPDATE users SET token_roles = $3::json, token_roles_until = $4 WHERE tenant_id = $1 AND id = $2 RETURNING id";
            let values = [p(&tenant_id), p(&user_id), (&text, Type::TEXT), p(&until)];
            match self.query(DbRole::Tenant(tenant_id), sql, &values).await?.len() {
                1 => Ok(()),
                _ => Err(StoreError::Moved { what: "user", id: user_id.to_string() }),
            }
        })
    }

    fn put_people(&self, tenant_id: Uuid, batch: PeopleBatch) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let people = write::People::new(&batch);
            let (tenant, params) = ([p(&tenant_id)], people.params(&tenant_id));
            let mut statements = vec![Statement { sql: LOCK_PEOPLE, params: &tenant }];
            statements.extend(people.statements(&params));
            self.run(DbRole::Tenant(tenant_id), &statements).await?;
            Ok(())
        })
    }

    fn create_key(&self, key: NewKey, by: Author) -> StoreFuture<'_, KeyRow> {
        Box::pin(async move {
            self.insert_key(KeyWrite { key: key.clone(), old: None, by, recorder: self.recorder.clone() }).await?;
            Ok(key.into_row())
        })
    }

    fn keys(&self, tenant_id: Uuid, page: Page) -> StoreFuture<'_, Vec<KeyRow>> {
        let columns = ListColumns { columns: row::KEY, bytes: "coalesce(octet_length(name), 0)" };
        Box::pin(List::new(row::KEY, "api_keys", tenant_id).page(self, page, columns, row::key))
    }

    fn delete_key(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool> {
        let (entry, at) = (Arc::new((self.recorder.clone(), by)), self.clock.now());
        Box::pin(self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move {
                let Some(key) = key_by_id(transaction, tenant_id, id).await? else { return Ok(false) };
                transaction.query("DELETE FROM api_keys WHERE tenant_id = $1 AND id = $2", &[p(&tenant_id), p(&id)]).await?;
                record(transaction, &entry.0, tenant_id, &entry.1, &[revoked(&key)], at).await?;
                Ok(true)
            })
        }))
    }

    fn key_by_digest(&self, digest: KeyDigest) -> StoreFuture<'_, Option<KeyRow>> {
        Box::pin(async move {
            let (sql, digest) = (format!("SELECT {} FROM api_keys WHERE digest = $1", row::KEY), digest.0.as_str());
            first(&self.query(DbRole::System, &sql, &[p(&digest)]).await?, row::key)
        })
    }

    fn setting(&self, name: String) -> StoreFuture<'_, Option<String>> {
        Box::pin(async move {
            let name = clean(&name);
            first(&self.query(DbRole::System, "SELECT value FROM settings WHERE name = $1", &[p(&name)]).await?, |columns| columns.text())
        })
    }

    fn put_setting(&self, name: String, value: String) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (name, value) = (clean(&name), clean(&value));
            let sql = "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            self.query(DbRole::System, sql, &[p(&name), p(&value)]).await?;
            Ok(())
        })
    }
}

fn principal(c: &mut Columns<'_>, tenant_id: Uuid, user_id: String) -> Result<Principal, StoreError> {
    let name = format!("{} {}", c.text()?, c.text()?).trim().to_owned();
    let (branch_id, locale, time_zone, tenant_slug) = (c.int_or_null()?, c.text()?, c.text()?, c.text()?);
    let roles = c.parsed(|text| serde_json::from_str(text).ok())?;
    let permissions = c.parsed(|text| serde_json::from_str(text).ok())?;
    Ok(Principal { tenant_id, tenant_slug, user_id, name, roles, branch_id, locale, time_zone, permissions })
}
